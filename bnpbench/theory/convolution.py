"""Lemma 8, Proposition 9 and Proposition 10: convolutions as matrices, in the paper's order of rows and columns."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.measure.curvature import layer_rows
from bnpbench.theory.hessian import TOLERANCE, exact_hessian, extended, hessian_of
from bnpbench.theory.outcome import Bound, Equality, Finding, Setup, statement


def unfolded(h: Tensor, k: int) -> Tensor:
    """The matrix of a same convolution (eq. Hhat less its column of ones), (N r s, c k^2), from maps (N, c, r, s).

    Column (p-1)k^2 + (a-1)k + t holds what w(t, a, p) is multiplied by; rows run over the first spatial index first.
    """
    n, channels, r, s = h.shape
    padded = F.pad(h, [(k - 1) // 2] * 4)
    columns = [
        padded[:, p, t : t + r, a : a + s].transpose(1, 2).reshape(n * r * s)
        for p in range(channels)
        for a in range(k)
        for t in range(k)
    ]
    return torch.stack(columns, 1)


def vec_maps(a: Tensor) -> Tensor:
    """(N, r, s) of one output channel to the vector of Lemma 8, (N r s,)."""
    return a.transpose(1, 2).reshape(-1)


def vec_kernel(weight: Tensor) -> Tensor:
    """(c, k, k) of one output channel, torch's order, to omega_d, (c k^2,)."""
    return weight.transpose(1, 2).reshape(-1)


def block_curvature(blocks: Tensor) -> Tensor:
    """Proposition 9: S from the second derivatives of each example's loss, (N, rs, rs): block diagonal, over N."""
    blocked: Tensor = torch.block_diag(*blocks)
    return blocked / len(blocks)


def mean_bound(k: int, r: int, s: int, largest: float) -> float:
    """Proposition 10: (k-1)(1/2r + 1/2s - (k-1)/4rs) max|h|."""
    return (k - 1) * (1 / (2 * r) + 1 / (2 * s) - (k - 1) / (4 * r * s)) * largest


def _sizes(generator: torch.Generator, largest: int = 6) -> tuple[int, int, int, int, int]:
    """N, c, r, s and an odd k."""
    n, c = (int(torch.randint(1, 4, (), generator=generator)) for _ in range(2))
    r, s = (int(torch.randint(1, largest + 1, (), generator=generator)) for _ in range(2))
    return n, c, r, s, int(2 * torch.randint(3, (), generator=generator) + 1)


@statement("lemma-8", "a convolution's output is H w with the unfolded H = [e, H]")
def lemma_8(setup: Setup) -> Finding:
    """Against torch's convolution, with zero padding to the same size."""
    equal, generator = Equality(TOLERANCE), setup.generator("lemma-8")
    for _ in range(setup.trials):
        n, c, r, s, k = _sizes(generator)
        h = torch.randn(n, c, r, s, generator=generator, dtype=torch.float64)
        _compare_convolution(equal, h, k, generator, f"N={n}, c={c}, {r} x {s}, k={k}")
    if setup.data is not None and setup.data.images.dim() == 4:
        images = setup.data.images[:20]
        _compare_convolution(equal, images, 3, generator, f"{setup.data.name} images {tuple(images.shape[1:])}, k=3")
    return Finding(
        tried=f"{equal.count} convolutions against torch's, k = 1, 3, 5, all r and s up to 6",
        worst=equal.worst,
        tightest=equal.tightest,
        verdict=equal.verdict,
        outside=(_other_convolutions(generator),),
    )


def _compare_convolution(equal: Equality, h: Tensor, k: int, generator: torch.Generator, where: str) -> None:
    weight = torch.randn(1, h.shape[1], k, k, generator=generator, dtype=h.dtype)
    bias = torch.randn(1, generator=generator, dtype=h.dtype)
    output = F.conv2d(h, weight, bias, padding=(k - 1) // 2)[:, 0]
    equal.add(extended(unfolded(h, k)) @ torch.cat([bias, vec_kernel(weight[0])]), vec_maps(output), where)


def _other_convolutions(generator: torch.Generator) -> str:
    equal = Equality(TOLERANCE)
    for options in ({"stride": 2}, {"padding": 0}, {"dilation": 2}, {"kernel_size": 2}, {"groups": 2}):
        layer = nn.Conv2d(4, 4, **({"kernel_size": 3, "padding": 1, "bias": False} | options)).double()  # type: ignore[arg-type]
        layer.requires_grad_(False).weight.copy_(torch.randn(layer.weight.shape, generator=generator))
        h = torch.randn(2, 4, 7, 6, generator=generator, dtype=torch.float64)
        rows = layer_rows(layer, h[:, : 4 // layer.groups])
        equal.add((rows @ layer.weight[:1].flatten(1).T).squeeze(2), layer(h)[:, 0].flatten(1), str(options))
    return (
        "strided, valid, dilated, grouped convolutions and an even kernel have the same form with their own rows: "
        f"{equal.worst}"
    )


@statement("proposition-9", "the Hessian of one convolution channel is H^T S H, S block diagonal with rs x rs blocks")
def proposition_9(setup: Setup) -> Finding:
    """A convolution, a smooth or piecewise linear activation and a dense layer, against ``torch.func.hessian``."""
    equal, generator, pointwise = Equality(TOLERANCE), setup.generator("proposition-9"), 0.0
    for trial in range(max(1, setup.trials // 2)):
        n, c, r, s, k = _sizes(generator, 4)
        h = torch.randn(n, c, r, s, generator=generator, dtype=torch.float64)
        smooth = trial % 2
        where = f"N={n}, c={c}, {r} x {s}, k={k}, {'tanh' if smooth else 'ReLU'}"
        pointwise = max(pointwise, _compare_hessian(equal, h, k, bool(smooth), generator, where))
    if setup.data is not None and setup.data.images.dim() == 4:
        top, left = (max(size - crop, 0) // 2 for size, crop in zip(setup.data.images.shape[2:], (6, 5), strict=True))
        h = setup.data.images[:3, :, top : top + 6, left : left + 5]
        _compare_hessian(equal, h, 3, False, generator, f"{setup.data.name}, N=3, crops of 6 x 5, k=3")
    return Finding(
        tried=f"{equal.count} convolutions against torch.func.hessian, r and s up to 4, k = 1, 3, 5",
        worst=equal.worst,
        tightest=equal.tightest,
        verdict=equal.verdict,
        outside=(f"with the blocks' diagonals alone the Hessian is off by up to {pointwise:.2f} of its largest entry",),
    )


def _compare_hessian(equal: Equality, h: Tensor, k: int, smooth: bool, generator: torch.Generator, where: str) -> float:
    """Adds both sides; returns the relative error of a pointwise diagonal S."""
    n, c, r, s = h.shape
    readout = torch.randn(3, r * s, generator=generator, dtype=h.dtype)
    labels = torch.randint(3, (n,), generator=generator)
    start = torch.randn(c * k * k + 1, generator=generator, dtype=h.dtype)
    rows = extended(unfolded(h, k))

    def losses(maps: Tensor) -> Tensor:
        active = maps.tanh() if smooth else maps.relu()
        return F.cross_entropy(active @ readout.T, labels, reduction="none")

    def loss_of_kernel(parameters: Tensor) -> Tensor:
        kernel = parameters[1:].reshape(c, k, k).transpose(1, 2).unsqueeze(0)
        maps = F.conv2d(h, kernel, parameters[:1], padding=(k - 1) // 2)[:, 0].transpose(1, 2).flatten(1)
        return losses(maps).mean()

    maps = (rows @ start).reshape(n, r * s)
    blocks = torch.stack(
        [
            exact_hessian(lambda v, j=j: losses(torch.cat([maps[:j], v.unsqueeze(0), maps[j + 1 :]]))[j], maps[j])  # type: ignore[misc]
            for j in range(n)
        ]
    )
    exact, curvature = exact_hessian(loss_of_kernel, start), block_curvature(blocks)
    equal.add(hessian_of(rows, curvature), exact, where)
    pointwise = hessian_of(rows, curvature.diag().diag())
    largest = exact.abs().max().item()
    return (pointwise - exact).abs().max().item() / largest if largest else 0.0


@statement("proposition-10", "|mu(t,a,p) - mu(p)| <= (k-1)(1/2r + 1/2s - (k-1)/4rs) max|h|")
def proposition_10(setup: Setup) -> Finding:
    """Random, constant and one-sided maps whose radius (k-1)/2 is at most max(r, s)."""
    bound, generator = Bound(), setup.generator("proposition-10")
    variance_share, random_share, trial = 0.0, 0.0, 0
    while trial < 2 * setup.trials:
        n, c, r, s, _ = _sizes(generator, 12)
        k = int(2 * torch.randint(5, (), generator=generator) + 1)
        if (k - 1) // 2 > max(r, s) or k == 1:
            continue
        kind = ("random", "constant", "one corner")[trial % 3]
        h = torch.randn(n, c, r, s, generator=generator, dtype=torch.float64)
        if kind == "constant":
            h = torch.full_like(h, -1.5)
        elif kind == "one corner":
            h = h.abs() * torch.linspace(1, 0, r, dtype=h.dtype).view(-1, 1) ** 3
        error, limit, variance = _statistics_of_taps(h, k)
        bound.add(error, limit, f"N={n}, c={c}, {r} x {s}, k={k}, {kind} map")
        variance_share = max(variance_share, variance)
        random_share = max(random_share, error / limit if kind == "random" else 0.0)
        trial += 1
    outside = [
        f"share of the bound reached: 1 by constant maps, at most {random_share:.2f} by random ones",
        f"variance, of which the paper says nothing: |sigma^2(t,a,p) - sigma^2(p)| is up to {variance_share:.2f} times "
        "the same factor times max h^2; for a constant map sigma^2(p) = 0 while sigma^2(t,a,p) > 0, so that no "
        "relative bound can exist",
        _kernel_larger_than_the_map(),
    ]
    if setup.data is not None and setup.data.images.dim() == 4:
        images = setup.data.images[:60]
        for k in (3, 5):
            error, limit, variance = _statistics_of_taps(images, k)
            bound.add(error, limit, f"{setup.data.name} images, k={k}")
            outside.append(
                f"{setup.data.name} images, k={k}: share {error / limit:.2f} (mean), {variance:.2f} (variance)"
            )
    return Finding(
        tried=f"{bound.count} maps up to 12 x 12, k up to 9, (k-1)/2 <= max(r, s)",
        worst=bound.worst,
        tightest=bound.tightest,
        verdict=bound.verdict,
        outside=tuple(outside),
    )


def _statistics_of_taps(h: Tensor, k: int) -> tuple[float, float, float]:
    """Largest error of the mean and its bound, of the channel that comes nearest; the variance's share of the bound."""
    channels = h.shape[1]
    columns = unfolded(h, k).reshape(-1, channels, k * k)
    flat = h.transpose(0, 1).flatten(1)
    errors = (columns.mean(0) - flat.mean(1, keepdim=True)).abs().amax(1)
    variances = (columns.var(0, correction=0) - flat.var(1, correction=0, keepdim=True)).abs().amax(1)
    largest = flat.abs().amax(1)
    limits = [mean_bound(k, h.shape[2], h.shape[3], value) for value in largest.tolist()]
    nearest = max(range(channels), key=lambda p: errors[p].item() / limits[p] if limits[p] > 0 else errors[p].item())
    factor = [mean_bound(k, h.shape[2], h.shape[3], 1.0) * value**2 for value in largest.tolist()]
    share = max((v / f for v, f in zip(variances.tolist(), factor, strict=True) if f > 0), default=0.0)
    return errors[nearest].item(), limits[nearest], share


def _kernel_larger_than_the_map() -> str:
    """The smallest case with (k-1)/2 > max(r, s)."""
    error, limit, _ = _statistics_of_taps(torch.ones(1, 1, 1, 1, dtype=torch.float64), 5)
    return (
        f"kernel larger than the map: a 1 x 1 map h = 1 with k = 5 has an error of {error:g} and a bound of {limit:g}"
    )
