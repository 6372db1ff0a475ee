"""How people use torch, one use a function: BNP's step is that of explicit matrices to 1e-9, or one clear error.

The functions under ``RIGHT`` train with a :class:`Use` and check every step; those under ``REFUSED`` end in the error
or warning that stands beside them, which says what to do.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torchvision
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.func import functional_call
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torchvision.models import convnext, densenet, googlenet, mobilenet_v2, resnet, squeezenet, swin_transformer
from torchvision.ops import MLP, FeaturePyramidNetwork, SqueezeExcitation

from bnpbench import BNP
from bnpbench.bnp.lean import Linear
from bnpbench.errors import StatisticsError
from tests.support.oracle import Watched


class Use:
    """A model in float64, its BNP, and the oracles of the layers that this tracks."""

    def __init__(self, model: nn.Module, recomputed: bool = False, **options: Any) -> None:
        self.model, self.recomputed = model.double(), recomputed
        self.watched, self.bnp = Watched(self.model), BNP(self.model, **options)
        self.watched.layers = {name: layer for name, layer in self.watched.layers.items() if name in self.bnp.layers}

    def step(self, inputs: Tensor, run: Callable[[Tensor], Any] | None = None) -> None:
        """One plain step, of an output that is a tensor or holds tensors."""
        self.model.zero_grad()
        output = (run or self.model)(inputs)
        leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
        torch.stack([leaf.square().mean() for leaf in leaves]).sum().backward()
        self.check()

    def check(self) -> None:
        """Precondition, by all calls since the last step; where calls are recomputed, by one for each input."""
        for name, calls in self.watched.inputs.items():
            if self.recomputed:
                kept = [h for i, h in enumerate(calls) if not any(h.equal(one) for one in calls[:i])]
                self.watched.inputs[name] = kept
        everything = self.watched.layers
        self.watched.layers = {name: layer for name, layer in everything.items() if layer.weight.grad is not None}
        self.watched.check(self.bnp, tolerance=1e-9)
        self.watched.layers = everything


def rows(*shape: int) -> Tensor:
    return 1 + torch.randn(*shape, dtype=torch.float64)


def mlp(bias: bool = True) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 5, bias=bias), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))


def plain(model: Callable[[], nn.Module], *shape: int) -> Callable[[], None]:
    """Two ordinary steps."""

    def use() -> None:
        used = Use(model())
        for _ in range(2):
            used.step(rows(*shape))

    return use


def pyramid() -> None:
    """One convolution over maps of several sizes, as detectors have it."""
    model = nn.ModuleDict({"pyramid": FeaturePyramidNetwork([2, 3], 4), "head": nn.Conv2d(4, 5, 3, padding=1)})
    use = Use(model)
    maps = {"fine": rows(2, 2, 8, 8), "coarse": rows(2, 3, 4, 4)}
    torch.stack([model["head"](h).square().mean() for h in model["pyramid"](maps).values()]).sum().backward()
    use.check()


def auxiliary_heads() -> None:
    model = googlenet(num_classes=3, init_weights=False, aux_logits=True)
    model = nn.ModuleDict({"stem": nn.Conv2d(3, 8, 3), "aux": nn.Conv2d(8, 4, 1), "inception": nn.Sequential(
        type(model.inception3a)(8, 4, 4, 6, 4, 4, 4)
    )})  # fmt: skip
    use = Use(model)
    hidden = model["stem"](rows(2, 3, 8, 8))
    (model["inception"](hidden).square().mean() + 0.3 * model["aux"](hidden).square().mean()).backward()
    use.check()


def decoder_layer() -> None:
    use = Use(nn.TransformerDecoderLayer(4, 2, 6, batch_first=True))
    use.step(rows(2, 3, 4), lambda target: use.model(target, rows(2, 5, 4)))


def recurrent_with_a_head() -> None:
    use = Use(nn.ModuleDict({"rnn": nn.LSTM(3, 4, batch_first=True), "head": nn.Linear(4, 2)}))
    use.step(rows(2, 5, 3), lambda h: use.model["head"](use.model["rnn"](h)[0]))


def cell_in_a_loop() -> None:
    """The same Linear at every step of time, through a cell that BNP leaves alone."""
    use = Use(nn.ModuleDict({"cell": nn.GRUCell(2, 4), "embed": nn.Linear(3, 2), "head": nn.Linear(4, 2)}))

    def unrolled(h: Tensor) -> list[Tensor]:
        state, outputs = h.new_zeros(len(h), 4), []
        for t in range(h.shape[1]):
            state = use.model["cell"](use.model["embed"](h[:, t]), state)
            outputs.append(use.model["head"](state))
        return outputs

    use.step(rows(3, 4, 3), unrolled)


def adaptive_softmax() -> None:
    use = Use(nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6], div_value=1.0))
    use.step(rows(6, 4), lambda h: use.model(h, torch.tensor([0, 1, 4, 5, 7, 9])).loss)


def tied_before() -> None:
    model = nn.ModuleDict({"embedding": nn.Embedding(6, 4), "body": nn.Linear(4, 4), "decoder": nn.Linear(4, 6)})
    model["decoder"].weight = model["embedding"].weight
    use = Use(model)
    assert use.bnp.layers == ("body",)
    tokens = torch.tensor([[1, 2, 3], [0, 5, 2]])
    use.step(rows(1), lambda _: model["decoder"](model["body"](model["embedding"](tokens))))


def checkpointed(count: str, use_reentrant: bool) -> Callable[[], None]:
    def use() -> None:
        used = Use(mlp(), recomputed=True, count=count)
        head, body = used.model[:3], used.model[3:]
        for _ in range(2):
            used.step(rows(4, 3).requires_grad_(), lambda h: body(checkpoint(head, h, use_reentrant=use_reentrant)))

    return use


def checkpointed_in_sequence() -> None:
    use = Use(mlp(), recomputed=True, count="forward")
    use.step(rows(4, 3).requires_grad_(), lambda h: checkpoint_sequential(use.model, 2, h, use_reentrant=False))


def checkpointed_inside_another() -> None:
    use = Use(mlp(), recomputed=True, count="forward")

    def outer(h: Tensor) -> Tensor:
        return use.model[2:](checkpoint(use.model[:2], h, use_reentrant=False))

    use.step(rows(4, 3), lambda h: checkpoint(outer, h, use_reentrant=False))


def watched_apart(use: Use) -> Callable[[Tensor], None]:
    """Move the oracles' hooks, which do not compile, to a copy; the function shows them the calls of a step."""
    twin = copy.deepcopy(use.model)
    for module in use.model.modules():
        module._forward_pre_hooks.clear()

    def show(inputs: Tensor) -> None:
        twin.load_state_dict(use.model.state_dict())
        with torch.no_grad():
            twin(inputs)

    return show


def checkpoint_of_a_compiled_module(count: str, use_reentrant: bool) -> Callable[[], None]:
    def use() -> None:
        used = Use(mlp(), count=count)
        show = watched_apart(used)
        head, body = torch.compile(used.model[:3], backend="aot_eager"), used.model[3:]

        def run(h: Tensor) -> Tensor:
            return body(checkpoint(head, h, use_reentrant=use_reentrant))

        for _ in range(2):
            inputs = rows(4, 3).requires_grad_()
            used.model.zero_grad()
            run(inputs).square().mean().backward()
            show(inputs)
            used.check()

    return use


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = mlp()[:3], mlp()[3:]

    def forward(self, h: Tensor) -> Tensor:
        return self.body(checkpoint(self.head, h, use_reentrant=False))


def compiled(model: Callable[[], nn.Module]) -> Callable[[], None]:
    def use() -> None:
        used = Use(model())
        show = watched_apart(used)
        fast = torch.compile(used.model, backend="aot_eager", fullgraph=True)
        for _ in range(2):
            inputs = rows(4, 3)
            used.model.zero_grad()
            fast(inputs).square().mean().backward()
            show(inputs)
            used.check()

    return use


def changed_before(change: Callable[[nn.Module], object]) -> Callable[[], None]:
    def use() -> None:
        model = mlp()
        change(model[2])
        used = Use(model)
        assert used.bnp.layers == ("0", "4")
        assert "parametrized" in used.bnp.skipped["2"]
        used.step(rows(4, 3))

    return use


def pruned_for_good() -> None:
    """Pruned weights that are made permanent are a parameter again."""
    model = mlp()
    prune.l1_unstructured(model[2], "weight", 0.5)
    prune.remove(model[2], "weight")
    use = Use(model)
    assert use.bnp.layers == ("0", "2", "4")
    use.step(rows(4, 3))


class Half(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight / 2


def parametrized(module: nn.Module) -> None:
    parametrize.register_parametrization(module, "weight", Half())


def frozen_backbone_with_adapters() -> None:
    """Low-rank adapters beside a frozen layer: their two factors are layers, the frozen one is not touched."""

    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.down, self.up = nn.Linear(3, 4), nn.Linear(3, 2, bias=False), nn.Linear(2, 4, bias=False)
            self.base.requires_grad_(False)

        def forward(self, h: Tensor) -> Tensor:
            return self.base(h) + self.up(self.down(h))

    plain(lambda: nn.Sequential(Adapted(), nn.Tanh(), nn.Linear(4, 1)), 5, 3)()


def averaged_copy() -> None:
    """A moving average of the weights, made of a copy that carries no hook and is evaluated between steps."""
    use = Use(mlp())
    average = torch.optim.swa_utils.AveragedModel(use.model)
    optimizer = torch.optim.SGD(use.model.parameters(), lr=0.1)
    for _ in range(2):
        use.step(rows(4, 3))
        optimizer.step()
        average.update_parameters(use.model)
        average(rows(2, 3)).sum().backward()
        use.watched.forget()


def micro_batches() -> None:
    use = Use(mlp())
    for _ in range(2):
        use.model.zero_grad()
        for count in (4, 1, 2):
            use.model(rows(count, 3)).square().mean().backward()
        use.check()


def zeroed_behind_autograd() -> None:
    """``.grad.data.zero_()`` between two backward passes: no version counts it."""
    use = Use(mlp())
    for _ in range(3):
        use.model.zero_grad()
        use.model(rows(6, 3)).square().mean().backward()
        for parameter in use.model.parameters():
            parameter.grad.data.zero_()
        use.watched.forget()
        use.model(rows(4, 3)).square().mean().backward()
        use.model(rows(2, 3)).square().mean().backward()
        use.check()


class NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        return h.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        return None


def function_without_gradient() -> None:
    use = Use(mlp())
    hidden = use.model(rows(9, 3))
    use.watched.forget()
    (NoGradient.apply(hidden).sum() + use.model(rows(4, 3)).square().mean()).backward()
    use.check()


def slope(output: Tensor, inputs: Tensor) -> Tensor:
    return torch.autograd.grad(output.sum(), inputs, create_graph=True)[0]


def differential_equation(order: str) -> Callable[[], None]:
    """A loss of derivatives with respect to the inputs, and one of values: all points are rows of every layer."""

    def use() -> None:
        used = Use(mlp())
        for _ in range(2):
            used.model.zero_grad()
            points, boundary = rows(6, 3).requires_grad_(), rows(4, 3)
            first = slope(used.model(points), points)
            penalty = (slope(first[:, 0], points) if order == "second derivative" else first).square().mean()
            loss = used.model(boundary).square().mean()
            if order == "penalty first":
                penalty.backward()
                loss.backward()
            elif order == "loss first":
                loss.backward()
                penalty.backward()
            elif order == "put there":
                parameters = list(used.model.parameters())
                gradients = torch.autograd.grad(loss + penalty, parameters, materialize_grads=True)
                for parameter, grad in zip(parameters, gradients, strict=True):
                    parameter.grad = grad
            else:
                (loss + penalty).backward()
            used.check()

    return use


def unused_derivative() -> None:
    """A derivative that is only looked at adds no rows, though it was made to be differentiated."""
    use = Use(mlp())
    points = rows(6, 3).requires_grad_()
    assert slope(use.model(points), points).isfinite().all()
    use.watched.forget()
    use.step(rows(4, 3))


def gradient_penalty() -> None:
    """A critic with a gradient penalty, of convolutions and without a bias, in one backward pass."""
    model = nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(12, 1, bias=False))
    use = Use(model)
    for _ in range(2):
        model.zero_grad()
        real, fake, between = rows(3, 1, 4, 4), rows(3, 1, 4, 4), rows(3, 1, 4, 4).requires_grad_()
        norm = slope(model(between), between).flatten(1).norm(dim=1)
        (model(fake).mean() - model(real).mean() + 10 * (norm - 1).square().mean()).backward()
        use.check()


def learning_to_learn() -> None:
    """An inner step that is differentiated: support and query are rows of the outer gradient."""
    use = Use(mlp())
    names, parameters = zip(*use.model.named_parameters(), strict=True)
    inner = torch.autograd.grad(use.model(rows(5, 3)).square().mean(), parameters, create_graph=True)
    fast = {name: p - 0.1 * g for name, p, g in zip(names, parameters, inner, strict=True)}
    functional_call(use.model, fast, rows(4, 3)).square().mean().backward()
    use.check()


def functional_gradients() -> None:
    """Gradients of a functional call, put into ``.grad``."""
    use = Use(mlp())
    copies = {name: p.detach().clone().requires_grad_() for name, p in use.model.named_parameters()}
    loss = functional_call(use.model, copies, rows(4, 3)).square().mean()
    for parameter, grad in zip(use.model.parameters(), torch.autograd.grad(loss, copies.values()), strict=True):
        parameter.grad = grad
    use.check()


def sharpness_aware() -> None:
    """Two backward passes a step, at weights that were moved; the second one's gradient is used."""
    use = Use(mlp())
    parameters = list(use.model.parameters())
    for _ in range(4):
        inputs = rows(4, 3)
        use.model.zero_grad()
        use.model(inputs).square().mean().backward()
        with torch.no_grad():
            moves = [0.05 * p.grad for p in parameters]
            torch._foreach_add_(parameters, moves)
        use.watched.forget()
        use.model.zero_grad()
        use.model(inputs).square().mean().backward()
        with torch.no_grad():
            torch._foreach_sub_(parameters, moves)
        use.check()


def closures() -> None:
    """An optimizer that calls a closure, which preconditions."""
    use = Use(mlp())
    optimizer = torch.optim.LBFGS(use.model.parameters(), lr=0.01, max_iter=3)

    def closure() -> float:
        use.step(rows(4, 3))
        return 1.0

    optimizer.step(closure)


def made_on_meta() -> None:
    with torch.device("meta"):
        model = mlp().double()
    use = Use(model)
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    for _ in range(2):
        use.step(rows(4, 3))


def cast_there_and_back() -> None:
    """Float64, float32 with a step that leaves the statistics alone, and back: the start values go along."""
    use = Use(mlp())
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        use.model.to(dtype)
        use.bnp.precondition()
        assert use.bnp.state_dict()["0.running_mean"].dtype == (dtype if dtype.itemsize > 2 else torch.float32)
    for _ in range(2):
        use.step(rows(4, 3))


def wrapped_later() -> None:
    """Layers that come to stand elsewhere in the model are the same layers."""
    use = Use(mlp())
    use.model[2] = nn.Sequential(use.model[2], nn.Dropout(0.0))
    use.step(rows(4, 3))


def made_again() -> None:
    """A BNP that nobody holds any more is no other BNP."""
    model = mlp().double()
    BNP(model)
    Use(model).step(rows(4, 3))
    assert len(model[0]._forward_hooks) == 1


def data_parallel() -> None:
    use = Use(mlp())
    parallel = DistributedDataParallel(use.model)
    for _ in range(2):
        use.step(rows(4, 3), parallel)


def sharded_in_part() -> None:
    model = mlp()
    fully_shard(model[2], mesh=init_device_mesh("cpu", (1,)))
    use = Use(model)
    assert use.bnp.layers == ("0", "4")
    use.step(rows(4, 3))


def lean_form(use_it: Callable[[nn.Module], Tensor]) -> Callable[[], None]:
    """The lean form beside the plain one, which the other tests compare with matrices."""

    def use() -> None:
        model = nn.Sequential(Linear(3, 5), nn.Tanh(), Linear(5, 1)).double()
        twin = copy.deepcopy(model)
        lean, reference = BNP(model, count="forward", lean=lambda name, module: True), Use(twin, recomputed=True)
        state = torch.get_rng_state()
        for one in (model, twin):
            torch.set_rng_state(state)
            use_it(one)
        reference.check()
        lean.precondition()
        for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12)

    return use


def two_calls(model: nn.Module) -> None:
    (model(rows(4, 3)).square().mean() + model(rows(2, 3)).sin().mean()).backward()


def two_backwards(model: nn.Module) -> None:
    output = model(rows(4, 3))
    output.square().mean().backward(retain_graph=True)
    output.sin().mean().backward()


def recomputation(model: nn.Module) -> None:
    model[1:](checkpoint(model[:1], rows(4, 3), use_reentrant=False)).square().mean().backward()


def micro_batched(model: nn.Module) -> None:
    for _ in range(2):
        model(rows(4, 3)).square().mean().backward()


def reentrant(model: nn.Module) -> None:
    inputs = rows(4, 3).requires_grad_()
    model[1:](checkpoint(model[:1], inputs, use_reentrant=True)).square().mean().backward()


def both_forms(model: nn.Module) -> None:
    (model(rows(1, 4, 3)).square().mean() + model(rows(2, 3)).sin().mean()).backward()


def vision_transformer() -> nn.Module:
    return torchvision.models.VisionTransformer(16, 8, 1, 2, 8, 12, num_classes=3)


def swin() -> nn.Module:
    return swin_transformer.SwinTransformer([4, 4], 8, [2], [2], [2, 2], num_classes=3)


def small_convnext() -> nn.Module:
    return convnext.ConvNeXt([convnext.CNBlockConfig(8, 12, 1), convnext.CNBlockConfig(12, None, 1)], num_classes=3)


RIGHT: dict[str, Callable[[], None]] = {
    "BasicBlock": plain(lambda: resnet.BasicBlock(4, 4), 2, 4, 6, 6),
    "Bottleneck": plain(lambda: resnet.Bottleneck(8, 2), 2, 8, 5, 5),
    "SqueezeNet": plain(lambda: squeezenet.Fire(8, 4, 6, 6), 2, 8, 7, 7),
    "MobileNetV2": plain(lambda: mobilenet_v2(num_classes=3, width_mult=0.1, inverted_residual_setting=[
        [1, 8, 1, 1], [6, 8, 2, 2]]).features[:4], 2, 3, 12, 12),
    "DenseNet, memory-efficient": plain(lambda: densenet.DenseNet(2, (2,), 4, 2, num_classes=3), 2, 3, 32, 32),
    "ConvNeXt": plain(small_convnext, 2, 3, 16, 16),
    "VisionTransformer": plain(vision_transformer, 2, 3, 16, 16),
    "3-d convolutions": plain(lambda: torchvision.models.video.resnet.R2Plus1dStem()[0], 1, 3, 2, 8, 8),
    "SqueezeExcitation": plain(lambda: SqueezeExcitation(6, 3), 2, 6, 4, 4),
    "MLP": plain(lambda: MLP(4, [6, 5, 2], dropout=0.1), 5, 4),
    "feature pyramid": pyramid,
    "auxiliary heads": auxiliary_heads,
    "TransformerEncoder": plain(lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, 6, batch_first=True), 2, enable_nested_tensor=False), 2, 3, 4),
    "TransformerDecoderLayer": decoder_layer,
    "LSTM and a head": recurrent_with_a_head,
    "cell in a loop": cell_in_a_loop,
    "AdaptiveLogSoftmaxWithLoss": adaptive_softmax,
    "bilinear": plain(lambda: nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (2, 2)), nn.Conv1d(2, 2, 1)), 4, 3),
    "no bias": plain(lambda: mlp(bias=False), 4, 3),
    "rows that do not lie end to end": plain(lambda: nn.Sequential(nn.Flatten(2), nn.Unflatten(
        1, (2, 2)), nn.Conv2d(2, 2, 1), nn.Flatten(2), nn.Linear(4, 2)), 3, 4, 2),
    "tied before": tied_before,
    **{f"checkpoint, {count}, reentrant={kind}": checkpointed(count, kind)
       for count in ("backward", "forward") for kind in (True, False)},
    "checkpoint_sequential": checkpointed_in_sequence,
    "checkpoint in a checkpoint": checkpointed_inside_another,
    **{f"checkpoint(compile), {count}, reentrant={kind}": checkpoint_of_a_compiled_module(count, kind)
       for count in ("backward", "forward") for kind in (True, False)},
    "compile": compiled(mlp),
    "compile(checkpoint)": compiled(Checkpointed),
    "pruned before": changed_before(lambda module: prune.l1_unstructured(module, "weight", 0.5)),
    "bias pruned before": changed_before(lambda module: prune.l1_unstructured(module, "bias", 0.5)),
    "pruned for good": pruned_for_good,
    "weight norm before": changed_before(parametrizations.weight_norm),
    "spectral norm before": changed_before(nn.utils.spectral_norm),
    "parametrized before": changed_before(parametrized),
    "adapters": frozen_backbone_with_adapters,
    "moving average of the weights": averaged_copy,
    "micro-batches": micro_batches,
    ".grad.data.zero_()": zeroed_behind_autograd,
    "Function that gives None": function_without_gradient,
    **{f"PINN, {order}": differential_equation(order)
       for order in ("one backward", "second derivative", "penalty first", "loss first", "put there")},
    "derivative that is not used": unused_derivative,
    "WGAN-GP": gradient_penalty,
    "MAML": learning_to_learn,
    "functional_call": functional_gradients,
    "SAM": sharpness_aware,
    "LBFGS": closures,
    "made on meta": made_on_meta,
    "cast": cast_there_and_back,
    "wrapped later": wrapped_later,
    "made again": made_again,
    "DDP": data_parallel,
    "FSDP2 before, of a part": sharded_in_part,
    "lean, two calls": lean_form(two_calls),
    "lean, two backwards": lean_form(two_backwards),
    "lean, checkpoint": lean_form(recomputation),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path) -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    torch._dynamo.reset()


@pytest.mark.parametrize("use", RIGHT.values(), ids=RIGHT.keys())
def test_right(use: Callable[[], None]) -> None:
    use()


def stepped(model: nn.Module, inputs: Tensor, between: Callable[[nn.Module], object] = lambda model: None) -> None:
    """BNP, what is done then, and a step."""
    bnp = BNP(model.double())
    between(model)
    model(inputs).square().mean().backward()
    bnp.precondition()


def changed_after(change: Callable[[nn.Module], object]) -> Callable[[], None]:
    return lambda: stepped(mlp(), rows(4, 3), lambda model: change(model[2]))


def tied_after() -> None:
    model = nn.Sequential(nn.Embedding(4, 4), nn.Linear(4, 4))
    stepped(model, torch.tensor([1, 2]), lambda model: setattr(model[1], "weight", model[0].weight))


def tied_to_after() -> None:
    model = nn.Sequential(nn.Embedding(4, 4), nn.Linear(4, 4))
    stepped(model, torch.tensor([1, 2]), lambda model: setattr(model[0], "weight", model[1].weight))


def replaced() -> None:
    stepped(mlp(), rows(4, 3), lambda model: model.__setitem__(4, nn.Linear(4, 2).double()))


def replaced_during_training() -> None:
    use = Use(mlp())
    use.step(rows(4, 3))
    use.model[4] = nn.Linear(4, 2).double()
    use.bnp.attach(torch.optim.SGD(use.model.parameters(), lr=0.1))


def added() -> None:
    stepped(mlp(), rows(4, 3), lambda model: model.append(nn.Linear(1, 2).double()))


def sharded_after() -> None:
    stepped(mlp(), rows(4, 3), lambda model: fully_shard(model, mesh=init_device_mesh("cpu", (1,))))


def sharded_before() -> None:
    stepped(fully_shard(mlp(), mesh=init_device_mesh("cpu", (1,))), rows(4, 3))


def gradients_by_example() -> None:
    """vmap(grad), clipped, averaged, put into ``.grad``."""
    model = mlp().double()
    bnp = BNP(model)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    gradient = torch.func.grad(lambda p, h: functional_call(model, p, (h,)).square().mean())
    found = torch.func.vmap(gradient, (None, 0))(parameters, rows(5, 3))
    for name, parameter in model.named_parameters():
        parameter.grad = found[name].clamp(-1, 1).mean(0)
    bnp.precondition()


def two_at_once() -> None:
    model = mlp()
    first = BNP(model)
    assert first.layers
    BNP(model)


def attached_twice() -> None:
    model = mlp()
    bnp, optimizer = BNP(model), torch.optim.SGD(model.parameters(), lr=0.1)
    bnp.attach(optimizer).remove()
    bnp.attach(optimizer)
    bnp.attach(optimizer)


def attached_to_the_weights_alone() -> None:
    model = mlp().double()
    weights, biases = ([p for p in model.parameters() if p.dim() == dim] for dim in (2, 1))
    torch.optim.SGD(biases, lr=0.1)
    BNP(model).attach(optimizer := torch.optim.SGD(weights, lr=0.1))
    model(rows(4, 3)).square().mean().backward()
    optimizer.step()


def attached_and_called() -> None:
    model = mlp().double()
    bnp, optimizer = BNP(model), torch.optim.SGD(model.parameters(), lr=0.1)
    bnp.attach(optimizer)
    model(rows(4, 3)).square().mean().backward()
    bnp.precondition()
    optimizer.step()


def forgotten(count: str) -> Callable[[], None]:
    def use() -> None:
        model = mlp().double()
        bnp, optimizer = BNP(model, count=count), torch.optim.SGD(model.parameters(), lr=0.1)  # type: ignore[arg-type]
        for _ in range(5):
            optimizer.zero_grad()
            model(rows(4, 3)).square().mean().backward()
            optimizer.step()
        bnp.remove()

    return use


def lean_refusal(use_it: Callable[[nn.Module], Any]) -> Callable[[], None]:
    return lean_form(use_it)


REFUSED: dict[str, tuple[Callable[[], None], type[Exception], str]] = {
    "Swin": (lambda: stepped(swin(), rows(2, 3, 16, 16)), StatisticsError, r"attn\.qkv.*proj[^$]*functional form"),
    "pruned after": (
        changed_after(lambda layer: prune.l1_unstructured(layer, "weight", 0.5)), StatisticsError, "'2' .* pruned"
    ),
    "bias pruned after": (
        changed_after(lambda layer: prune.l1_unstructured(layer, "bias", 0.5)), StatisticsError, "'2' .*parametrized"
    ),
    "weight norm after": (changed_after(parametrizations.weight_norm), StatisticsError, "'2' .* parametrized"),
    "spectral norm after": (changed_after(nn.utils.spectral_norm), StatisticsError, "'2' .* parametrized"),
    "parametrized after": (changed_after(parametrized), StatisticsError, "'2' .* parametrized"),
    "tied after": (tied_after, StatisticsError, "'1' .*tied"),
    "tied to after": (tied_to_after, StatisticsError, "'1' .*tied"),
    "layer replaced": (replaced, UserWarning, "'4' is no longer part of the model"),
    "layer replaced later": (replaced_during_training, UserWarning, "'4' is no longer part of the model"),
    "layer added": (added, UserWarning, "leaves '5' alone"),
    "FSDP2 after": (sharded_after, StatisticsError, "'0' .*sharded"),
    "FSDP2 before": (sharded_before, UserWarning, "tracks no layer .*sharded"),
    "nothing to track": (lambda: stepped(nn.LayerNorm(2), rows(3, 2)), UserWarning, "no layer of this LayerNorm"),
    "vmap": (gradients_by_example, StatisticsError, r"'0' has a gradient[^$]*torch\.func"),
    "sparse": (lambda: stepped(nn.Linear(3, 2), rows(4, 3).to_sparse()), StatisticsError, "sparse_coo"),
    "sparse rows": (lambda: stepped(nn.Linear(3, 2), rows(4, 3).to_sparse_csr()), StatisticsError, "sparse_csr"),
    "nested": (
        lambda: stepped(nn.Linear(3, 2), torch.nested.nested_tensor([rows(2, 3), rows(4, 3)], layout=torch.jagged)),
        StatisticsError,
        "nested",
    ),
    "two BNPs": (two_at_once, ValueError, "another BNP"),
    "attached twice": (attached_twice, ValueError, "attached already"),
    "attached to weights alone": (attached_to_the_weights_alone, ValueError, "not its bias"),
    "attached and called": (attached_and_called, StatisticsError, r"by hand and by attach\(\)"),
    "precondition() forgotten": (forgotten("backward"), UserWarning, r"Call precondition\(\)"),
    "precondition() forgotten, forward": (forgotten("forward"), UserWarning, r"Call precondition\(\)"),
    "lean, micro-batches": (lean_form(micro_batched), StatisticsError, "micro-batches"),
    "lean, reentrant": (lean_form(reentrant), StatisticsError, "reentrant"),
    "lean, other calls": (lean_form(both_forms), StatisticsError, "does not cover"),
}  # fmt: skip


@pytest.mark.parametrize(("use", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(use: Callable[[], None], error: type[Exception], words: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors|Sparse CSR|Sparse invariant")
        if error is UserWarning:
            with pytest.warns(error, match=words):
                use()
        else:
            with pytest.raises(error, match=words):
                use()
