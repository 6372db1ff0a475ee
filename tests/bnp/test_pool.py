"""The one rule: a call counts when a gradient reaches its output, as long as that gradient is in ``.grad``."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bnpbench.bnp import BNP
from bnpbench.errors import StatisticsError
from tests.support.oracle import Watched


class Run:
    """A model under test, its BNP and its oracles. ``rows`` draws a batch; ``backward`` takes a step's gradient."""

    def __init__(self, model: nn.Module | None = None) -> None:
        self.model = model or nn.Sequential(
            nn.Linear(3, 5), nn.ReLU(inplace=True), nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 2, 3, padding=1), nn.Tanh(),
            nn.Flatten(), nn.Linear(10, 2, bias=False),
        ).double()  # fmt: skip
        self.watched, self.bnp = Watched(self.model), BNP(self.model)
        self.generator = torch.Generator().manual_seed(3)

    def rows(self, count: int = 4) -> Tensor:
        return 1 + torch.randn(count, 3, generator=self.generator, dtype=torch.float64)

    def loss(self, rows: Tensor) -> Tensor:
        return self.model(rows).square().mean()

    def backward(self, count: int = 4) -> None:
        self.loss(self.rows(count)).backward()

    def uncounted(self, action: Callable[[], object]) -> None:
        """Do something whose rows must not count."""
        before = {name: list(calls) for name, calls in self.watched.inputs.items()}
        action()
        self.watched.inputs.update(before)

    def check(self) -> None:
        self.watched.check(self.bnp)


def train_mode_forward(run: Run) -> None:
    run.model(run.rows())


def no_grad_forward(run: Run) -> None:
    with torch.no_grad():
        run.model(run.rows())


def eval_forward(run: Run) -> None:
    run.model.eval()
    run.model(run.rows())
    run.model.train()


def input_gradient(run: Run) -> None:
    """The gradient reaches every layer's output, but no weight."""
    rows = run.rows().requires_grad_()
    torch.autograd.grad(run.loss(rows), rows)


def dropped(set_to_none: bool) -> Callable[[Run], None]:
    def drop(run: Run) -> None:
        run.backward()
        run.model.zero_grad(set_to_none=set_to_none)

    return drop


EXTRAS = {
    "train": train_mode_forward,
    "no_grad": no_grad_forward,
    "eval": eval_forward,
    "input gradient": input_gradient,
    "dropped": dropped(set_to_none=True),
}


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS.keys())
def test_what_leaves_no_gradient_does_not_count(extra: Callable[[Run], None], set_to_none: bool) -> None:
    run = Run()
    for _ in range(3):
        run.model.zero_grad(set_to_none=set_to_none)
        run.uncounted(lambda: extra(run))
        run.backward()
        if extra is not EXTRAS["dropped"]:
            run.uncounted(lambda: extra(run))
        run.check()


def test_gradients_zeroed_in_place_do_not_count() -> None:
    run = Run()
    for _ in range(3):
        run.uncounted(lambda: dropped(set_to_none=False)(run))
        run.backward()
        run.check()
        run.model.zero_grad(set_to_none=False)


def test_gradients_dropped_between_micro_batches() -> None:
    """Zeroing in place after the second of four micro-batches leaves the last two."""
    run = Run()
    for _ in range(2):
        run.uncounted(lambda: (run.backward(2), run.backward(3), run.model.zero_grad(set_to_none=False)))
        run.backward(2)
        run.backward(1)
        run.check()
        run.model.zero_grad(set_to_none=False)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_step_after_dropping_everything_changes_nothing(set_to_none: bool) -> None:
    run = Run()
    run.backward()
    run.check()
    before = run.bnp.state_dict()
    run.backward()
    run.model.zero_grad(set_to_none=set_to_none)
    run.bnp.precondition()
    assert all(value.equal(before[key]) for key, value in run.bnp.state_dict().items())
    gradients = [p.grad for p in run.model.parameters()]
    assert all(g is None or not g.any() for g in gradients)
    assert all((g is None) == set_to_none for g in gradients)


def test_input_gradient_before_zeroing_in_place() -> None:
    run = Run()
    run.backward()
    run.check()
    run.uncounted(lambda: input_gradient(run))
    run.model.zero_grad(set_to_none=False)
    run.backward()
    run.check()


def test_two_backwards_through_one_graph_count_the_rows_once() -> None:
    run = Run()
    for _ in range(2):
        run.model.zero_grad()
        output = run.model(run.rows())
        output.square().mean().backward(retain_graph=True)
        output.sin().mean().backward()
        run.check()


def test_a_graph_counts_again_after_its_first_gradient_was_used() -> None:
    run = Run()
    output = run.model(run.rows())
    calls = {name: list(inputs) for name, inputs in run.watched.inputs.items()}
    for function in (torch.square, torch.sin, torch.cos):
        run.model.zero_grad()
        run.watched.inputs.update({name: list(inputs) for name, inputs in calls.items()})
        function(output).mean().backward(retain_graph=True)
        run.check()


def test_a_graph_counts_again_after_its_first_gradient_was_zeroed_in_place() -> None:
    run = Run()
    output = run.model(run.rows())
    output.square().mean().backward(retain_graph=True)
    run.model.zero_grad(set_to_none=False)
    output.sin().mean().backward()
    run.check()


def test_discriminator_and_generator() -> None:
    """Each optimizer's step takes its own network's rows; fakes that only train the generator are dropped."""
    torch.manual_seed(0)
    fake, judge = nn.Linear(2, 3).double(), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    both = nn.ModuleDict({"fake": fake, "judge": judge})
    watched, bnp = Watched(both), BNP(both)
    optimizers = {name: torch.optim.SGD(net.parameters(), lr=0.1) for name, net in both.items()}
    for optimizer in optimizers.values():
        bnp.attach(optimizer)
    for _ in range(3):
        for name, optimizer in optimizers.items():
            both.zero_grad()
            noise, real = torch.randn(4, 2, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
            if name == "judge":
                (judge(fake(noise).detach()).mean() - judge(real).mean()).backward()
                watched.inputs["fake"].clear()
            else:
                judge(fake(noise)).mean().backward()
            expected = {
                key: oracle.step(watched.inputs[key], oracle.layer.weight.grad, oracle.layer.bias.grad)
                for key, oracle in watched.oracles.items()
                if key.startswith(name)
            }
            optimizer.step()
            for key, value in expected.items():
                torch.testing.assert_close(watched.layers[key].weight.grad, value.weight, rtol=1e-12, atol=1e-14)
                torch.testing.assert_close(watched.layers[key].bias.grad, value.bias, rtol=1e-12, atol=1e-14)
            watched.forget()


def test_unscaled_and_clipped_gradients_keep_their_rows() -> None:
    """Written to in place, but not zeroed."""
    run = Run()
    for _ in range(3):
        run.model.zero_grad()
        run.backward(2)
        run.backward(1)
        for parameter in run.model.parameters():
            parameter.grad.mul_(0.25)
        nn.utils.clip_grad_norm_(run.model.parameters(), 0.01)
        run.check()


def test_a_layer_without_gradient_is_left_alone() -> None:
    run = Run()
    run.backward()
    run.check()
    run.model.zero_grad()
    before = run.bnp.state_dict()
    run.model[6](torch.randn(4, 10, dtype=torch.float64)).sum().backward()
    run.bnp.precondition()
    after = run.bnp.state_dict()
    assert {key for key in after if not after[key].equal(before[key])} == {"6.running_mean", "6.running_var"}
    assert run.model[0].weight.grad is None


def test_a_frozen_layer_is_left_alone_and_a_frozen_bias_is_as_no_bias() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2, bias=False)).double()
    model[0].weight.requires_grad_(False)
    twin = nn.Linear(4, 2).double()
    twin.weight.data, twin.bias.data = model[1].weight.data, torch.zeros(2, dtype=torch.float64)
    twin.bias.requires_grad_(False)
    rows = torch.randn(5, 3, dtype=torch.float64)
    bnps = [BNP(model), BNP(twin)]
    model(rows).square().sum().backward()
    raw_bias = model[0].bias.grad.clone()
    twin(model[0](rows).detach()).square().sum().backward()
    for bnp in bnps:
        bnp.precondition()
    assert model[0].bias.grad.equal(raw_bias)
    torch.testing.assert_close(twin.weight.grad, model[1].weight.grad, rtol=1e-12, atol=0)


def test_a_failed_backward_leaves_nothing_behind() -> None:
    run = Run()

    def fail(_: Tensor) -> None:
        raise RuntimeError("no gradient")

    def failing() -> None:
        rows = run.rows().requires_grad_()
        hidden = run.model[0](rows)
        hidden.register_hook(fail)
        with pytest.raises(RuntimeError, match="no gradient"):
            run.model[1:](hidden).square().mean().backward()
        run.model.zero_grad()

    for _ in range(2):
        run.uncounted(failing)
        run.backward()
        run.check()
        run.model.zero_grad()


def gradient_by_second_call(run: Run) -> None:
    run.backward()
    run.bnp.precondition()


def gradient_from_eval_mode(run: Run) -> None:
    run.model.eval()
    run.backward()


def gradient_without_the_layer(run: Run) -> None:
    nn.functional.linear(run.rows(), run.model[0].weight).sum().backward()


def gradient_after_removal(run: Run) -> None:
    run.bnp.remove()
    run.backward()


@pytest.mark.parametrize(
    "action", [gradient_by_second_call, gradient_from_eval_mode, gradient_without_the_layer, gradient_after_removal]
)
def test_a_gradient_without_statistics_is_an_error_that_names_the_layer(action: Callable[[Run], None]) -> None:
    run = Run()
    action(run)
    before = [None if p.grad is None else p.grad.clone() for p in run.model.parameters()]
    with pytest.raises(StatisticsError, match="layer '0' has a gradient"):
        run.bnp.precondition()
    after = [p.grad for p in run.model.parameters()]
    assert all(a is b is None or a.equal(b) for a, b in zip(after, before, strict=True)), "an error must change nothing"


def test_the_inner_projection_of_attention_is_left_alone() -> None:
    model = nn.ModuleDict({"attention": nn.MultiheadAttention(4, 2), "head": nn.Linear(4, 1)})
    rows = torch.randn(3, 2, 4)
    bnp = BNP(model)
    assert bnp.layers == ("head",)
    assert "without calling it" in bnp.skipped["attention.out_proj"]
    model["head"](model["attention"](rows, rows, rows)[0]).sum().backward()
    raw = model["attention"].out_proj.weight.grad.clone()
    bnp.precondition()
    assert model["attention"].out_proj.weight.grad.equal(raw)


def test_every_layer_without_rows_is_named_and_every_cause() -> None:
    run = Run()
    run.backward()
    run.bnp.precondition()
    with pytest.raises(StatisticsError, match=r"'0' .* \(nor for '3', '6'\)") as caught:
        run.bnp.precondition()
    for cause in ("attach()", "older", "eval mode", "torch.func", "layers=", "copy", "compiled", 'count="forward"'):
        assert cause in str(caught.value)


@pytest.mark.parametrize("zeros", [1, 2])
def test_a_gradient_that_is_zero_by_itself_keeps_its_rows(zeros: int) -> None:
    """A hinge loss without a violation among the micro-batches; told from ``.data.zero_()`` once there were two."""
    run = Run()
    run.backward()
    run.backward()
    run.check()
    run.model.zero_grad()
    for _ in range(zeros):
        (run.loss(run.rows(2)) * 0).backward()
    run.backward()
    run.check()


@pytest.mark.parametrize("counts", [(4,), (1,), (2, 3, 1)])
def test_counting_at_the_forward_pass_is_the_same_in_a_plain_loop(counts: tuple[int, ...]) -> None:
    run = Run()
    run.bnp.remove()
    run.bnp = BNP(run.model, count="forward")
    for _ in range(3):
        run.model.zero_grad()
        for count in counts:
            run.backward(count)
        run.uncounted(lambda: (no_grad_forward(run), eval_forward(run)))
        run.check()


def test_counting_at_the_forward_pass_takes_a_forward_without_backward_in() -> None:
    run = Run()
    run.bnp.remove()
    run.bnp = BNP(run.model, count="forward")
    train_mode_forward(run)
    run.backward()
    run.check()
    train_mode_forward(run)
    run.model.zero_grad()
    run.bnp.precondition()  # there is no gradient: the rows are forgotten
    run.watched.forget()
    run.backward()
    run.check()


@pytest.mark.regression
def test_the_gradient_that_a_frozen_bias_has_kept_is_left_alone() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(4, 3).double()
    twin = nn.Linear(4, 3, bias=False).double()
    with torch.no_grad():
        twin.weight.copy_(layer.weight)
    layer.bias.requires_grad_(False)
    layer.bias.grad = torch.ones(3, dtype=torch.float64)
    inputs = 1 + torch.randn(5, 4, dtype=torch.float64)
    for one in (layer, twin):
        bnp = BNP(one)
        one(inputs).sum().backward()
        bnp.precondition()
    torch.testing.assert_close(layer.weight.grad, twin.weight.grad, rtol=1e-12, atol=1e-14)
    assert layer.bias.grad.tolist() == [1.0, 1.0, 1.0]
