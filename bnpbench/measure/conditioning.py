"""How well conditioned the Hessian of the loss is with respect to one neuron, before and after preconditioning.

For the weights and the bias of one neuron of a dense or convolutional layer in a piecewise linear network under the
mean softmax cross-entropy, the Hessian is ``H^T S H`` with the rows ``H = [e, h]`` that the layer reads (Propositions 2
and 9). It is singular in practice, so that its condition number is sigma_max over the smallest *nonzero* singular
value. It is never formed: with ``A = S^(1/2) H`` and ``P = [[1, -mu^T], [0, I]] diag(1, 1/sigma)``,

    kappa(Hessian) = (sigma_1(A) / sigma_r(A))^2        kappa(P^T Hessian P) = (sigma_1(AP) / sigma_r(AP))^2

in float64, with ``AP = S^(1/2) [e, (h - mu)/sigma]`` built from the centred rows. ``S^(1/2)`` is the Jacobian of the
logits times the factor L D^(1/2) of ``diag(p) - p p^T = L D L^T`` (Tanabe and Sagae 1992), whose entries are positive
products of probabilities: they are computed from logarithms and lose nothing where ``p (1 - p)`` underflows. The labels
do not enter. Multiplying S by a number leaves every condition number alone, so the largest weight is taken as 1.

A feature whose batch standard deviation is at most ``DEAD`` times the largest entry of h is dead: it has no column in
the undamped AP. The rank r is the number of singular values above ``max(shape) eps sigma_1``; P does not change it, so
it is taken from the matrix that shows most. A condition number is null where sigma_r is not at least ``MIN_GAP`` times
the next singular value (or eps sigma_1, if that is more), because then no singular value is known to be the smallest
nonzero one. Where the network gives no finite numbers, they are NaN.

Source: Lange, Helfrich, Ye 2022, sections 3.3 and 5.1, Figure 8.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.bnp import BNP
from bnpbench.bnp.algorithms import batch_statistics, damped_variance, update_running
from bnpbench.bnp.rewriter import Rewriter
from bnpbench.measure.curvature import View, look
from bnpbench.records.rows import StepRow

if TYPE_CHECKING:
    from bnpbench.bnp.tracker import Tracker

DEAD = 1e-12
MIN_GAP = 100.0
EPSILON = torch.finfo(torch.float64).eps
EPS1, EPS2 = 1e-2, 1e-4  # the paper's damping, where there is no BNP to ask


@dataclass(frozen=True)
class Conditioning:
    """The Hessian of one neuron with one preconditioner.

    Attributes:
        preconditioner: ``batch`` (mean and standard deviation of this batch, undamped), ``batch_damped``, or
            ``running_damped`` (what the next step of BNP uses).
        kappa_hessian: condition number of the Hessian; null where it is not known in float64.
        kappa_preconditioned: of the preconditioned Hessian.
        kappa_gain: the first over the second.
        kappa_d: of D = diag(1, 1/sigma); undamped, over the live features.
        gain_over_kappa_d_squared: kappa_gain / kappa_d^2, which the paper expects to be about 1.
        rank: r, of both Hessians.
        gap: sigma_r over the next singular value or eps sigma_1, the smaller of both matrices'.
        live_features: weights whose feature (dense) or channel (convolution) varies over the batch.
        live_rows: rows of A that are not zero.
    """

    preconditioner: str
    kappa_hessian: float | None
    kappa_preconditioned: float | None
    kappa_gain: float | None
    kappa_d: float | None
    gain_over_kappa_d_squared: float | None
    rank: int
    gap: float
    live_features: int
    live_rows: int


@dataclass(frozen=True)
class Probe:
    """Looks at one neuron in every so many steps of the first epochs.

    Attributes:
        layer: name of a Linear or Conv in ``model.named_modules()``.
        neuron: output feature or channel, from 0.
        every: look at steps 1, 1 + every, 1 + 2 every, ...
        epochs: look in epochs 1 to this.
    """

    layer: str
    neuron: int = 0
    every: int = 1
    epochs: int = 1

    def due(self, epoch: int, step: int) -> bool:
        """Whether to look before this step; both from 1."""
        return epoch <= self.epochs and (step - 1) % self.every == 0

    def rows(self, model: nn.Module, images: Tensor, bnp: Tracker[Any] | None, epoch: int, step: int) -> list[StepRow]:
        """Rows (without the key) for the step that ``images`` are about to make.

        Call it *before* that step: the running statistics it uses are those that the step will have after folding
        ``images`` in. It changes nothing of ``model`` or ``bnp``. See :func:`conditioning` for the rest.
        """
        place = {"epoch": epoch, "step": step, "layer": self.layer, "neuron": self.neuron}
        found = conditioning(model, images, layer=self.layer, neuron=self.neuron, bnp=bnp)
        return [cast(StepRow, place | asdict(one)) for one in found]


def conditioning(
    model: nn.Module, images: Tensor, *, layer: str, neuron: int = 0, bnp: Tracker[Any] | None = None
) -> list[Conditioning]:
    """Condition numbers of the Hessian of the mean cross-entropy with respect to one neuron.

    Works on a copy of the model in float64; weights, buffers, hooks and random states stay as they are.

    Args:
        model: gives logits (N, classes). From the layer on it must be piecewise linear (ReLU, max-pooling,
            convolutions, dense layers; batch normalization in eval mode); the output layer always qualifies.
        images: (N, ...), what the model reads.
        layer: name of a Linear or Conv that the model calls once.
        neuron: output feature or channel, from 0.
        bnp: gives the running statistics, rho and the damping of its layers; or another preconditioner.

    Returns:
        One entry for the batch's statistics, one for them damped, one for the running ones if ``bnp`` tracks the layer.
        Where that is no BNP, the last is of the symmetric matrix by which its next step multiplies from the side of the
        inputs; a factor on the other side leaves the Hessian of one neuron as it is, up to a number. It is left out
        before the first step on the layer if the matrix depends on gradients at the output, as K-FAC's (pi) and Eva's
        do: those come with the step. Later it takes what is kept of those of the steps before (K-FAC's B, Eva's b),
        also where the next step will refresh with its own.

    Raises:
        BnpbenchError: there is no such layer or neuron.
        NotApplicable: the network is not piecewise linear behind the layer, or calls it other than once.
    """
    view = look(model, images, layer, neuron)
    own = _preconditioners(view, bnp, layer)
    preconditioners: list[_Preconditioner | _Matrix] = [*own]
    if isinstance(bnp, Rewriter) and layer in bnp.layers:
        matrix = bnp.input_matrix(layer, view.inputs, view.group)
        preconditioners += [] if matrix is None else [_Matrix(matrix)]
    matrices = [view.weighted(rows) for rows in [_plain(view), *(p.apply(view) for p in preconditioners)]]
    spectra = [_singular_values(matrix) for matrix in matrices]
    rank = max(map(numerical_rank, matrices, spectra))
    live = int(own[0].live.sum())
    return [
        _compare(p.name, spectra[0], spectrum, rank, p.kappa_d(view), live, len(matrices[0]))
        for p, spectrum in zip(preconditioners, spectra[1:], strict=True)
    ]


def numerical_rank(matrix: Tensor, singular_values: Tensor) -> int:
    """How many singular values exceed ``max(shape) eps sigma_1``."""
    return int((singular_values > max(matrix.shape) * EPSILON * singular_values[:1]).sum())


@dataclass(frozen=True)
class _Preconditioner:
    """P = [[1, -mu^T], [0, I]] diag(1, 1/sigma) per column of the rows; ``live`` columns only."""

    name: str
    mean: Tensor
    deviation: Tensor
    live: Tensor

    def apply(self, view: View) -> Tensor:
        """[e, (h - mu)/sigma], (N, T, m); without a bias the square root of (diag(sigma^2) + mu mu^T)^-1 on the right.

        That root is ``diag(1/sigma) (I - (1 - 1/sqrt(1 + |v|^2)) v v^T / |v|^2)``, v = mu/sigma, up to a rotation.
        """
        mean, deviation = self.mean[self.live], self.deviation[self.live]
        centred = (view.rows[..., self.live] - mean) / deviation
        if view.has_bias:
            return F.pad(centred, (1, 0), value=1.0)
        direction = mean / deviation
        square = direction.dot(direction)
        if square == 0:
            return centred
        shrink = 1 - (1 + square).rsqrt()
        inward = (centred @ direction).unsqueeze(-1) * (shrink / square) * direction
        return centred - inward + direction * (1 + square).rsqrt()

    def kappa_d(self, view: View) -> float | None:
        """Of D = diag(1, 1/sigma); without a bias of diag(1/sigma)."""
        scales = self.deviation[self.live]
        if view.has_bias:
            scales = F.pad(scales, (1, 0), value=1.0)
        return (scales.max() / scales.min()).item() if len(scales) else None


@dataclass(frozen=True)
class _Matrix:
    """The matrix M by which a preconditioner multiplies [G_b | G_w] from the right; P is its symmetric root."""

    matrix: Tensor
    name: str = "running_damped"

    def apply(self, view: View) -> Tensor:
        """[e, h] M^(1/2), (N, T, m)."""
        if not self.matrix.isfinite().all():
            return _plain(view) * math.nan
        values, vectors = torch.linalg.eigh((self.matrix + self.matrix.mT) / 2)
        product: Tensor = _plain(view) @ (vectors * values.clamp(min=0).sqrt()) @ vectors.mT
        return product

    def kappa_d(self, view: View) -> None:
        """There is no diagonal."""
        return


def _preconditioners(view: View, bnp: Tracker[Any] | None, layer: str) -> list[_Preconditioner]:
    """The batch's statistics, those damped, and the damped running ones that the step on this batch will use."""
    bnp = bnp if isinstance(bnp, BNP) else None
    running = _running(view, bnp, layer) if bnp is not None and layer in bnp.layers else None
    eps1, eps2 = (bnp.options.eps1, bnp.options.eps2) if bnp is not None else (EPS1, EPS2)
    channel_dim = -1 if isinstance(view.module, nn.Linear) else 1
    mean, variance = batch_statistics(view.inputs, channel_dim=channel_dim, running_mean=running and running[0])
    live = variance.sqrt() > DEAD * view.inputs.abs().max()
    every = torch.ones_like(live)
    kinds = [
        ("batch", mean, variance, live),
        ("batch_damped", mean, damped_variance(variance, eps1, eps2), every),
    ]
    if running is not None and bnp is not None:
        options, used = bnp.options, (mean, variance)
        if not options.batch:
            used = update_running(running[0], mean, options.rho), update_running(running[1], variance, options.rho)
        means = used[0] if options.center else torch.zeros_like(mean)
        damped = damped_variance(used[1], eps1, eps2) if options.standardize else torch.ones_like(variance)
        kinds.append(("running_damped", means, damped, every))
    taps = 1 if isinstance(view.module, nn.Linear) else math.prod(view.module.kernel_size)
    return [
        _Preconditioner(name, *(vector.repeat_interleave(taps) for vector in (mean, variance.sqrt(), live)))
        for name, mean, variance, live in kinds
    ]


def _running(view: View, bnp: BNP, layer: str) -> tuple[Tensor, Tensor]:
    """Running mean and variance of the neuron's group before the step, copies in float64."""
    state = bnp.state_dict()
    prefix = f"{layer}." if layer else ""
    groups = 1 if isinstance(view.module, nn.Linear) else view.module.groups
    mean, variance = state[f"{prefix}running_mean"], state[f"{prefix}running_var"]
    return mean.double().cpu().chunk(groups)[view.group], variance.double().cpu().chunk(groups)[view.group]


def _singular_values(matrix: Tensor) -> Tensor:
    """In falling order; not a number where the matrix is not finite, as in a run that has diverged."""
    if not matrix.isfinite().all():
        return matrix.new_full((min(matrix.shape),), math.nan)
    values: Tensor = torch.linalg.svdvals(matrix)
    return values


def _plain(view: View) -> Tensor:
    return F.pad(view.rows, (1, 0), value=1.0) if view.has_bias else view.rows


def _compare(
    name: str, plain: Tensor, spectrum: Tensor, rank: int, kappa_d: float | None, live_features: int, live_rows: int
) -> Conditioning:
    hessian, preconditioned = _kappa(plain, rank), _kappa(spectrum, rank)
    gain = hessian / preconditioned if hessian is not None and preconditioned is not None else None
    return Conditioning(
        preconditioner=name,
        kappa_hessian=hessian,
        kappa_preconditioned=preconditioned,
        kappa_gain=gain,
        kappa_d=kappa_d,
        gain_over_kappa_d_squared=gain / kappa_d**2 if gain is not None and kappa_d is not None else None,
        rank=rank,
        gap=min(_gap(plain, rank), _gap(spectrum, rank)),
        live_features=live_features,
        live_rows=live_rows,
    )


def _kappa(singular_values: Tensor, rank: int) -> float | None:
    """Of the Hessian whose factor has these singular values; None if none is known to be the smallest nonzero one."""
    if singular_values.isnan().any():
        return math.nan
    if _gap(singular_values, rank) < MIN_GAP:
        return None
    return (singular_values[0] / singular_values[rank - 1]).square().item()


def _gap(singular_values: Tensor, rank: int) -> float:
    if not 0 < rank <= len(singular_values):
        return 0.0
    floor = EPSILON * singular_values[0]
    below = torch.maximum(singular_values[rank], floor) if rank < len(singular_values) else floor
    return (singular_values[rank - 1] / below).item()
