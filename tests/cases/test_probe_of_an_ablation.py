"""`running_damped` is what the next step of BNP uses: of a BNP with an option off it showed the step with that on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bnpbench.bnp import BNP
from bnpbench.measure.conditioning import conditioning

LABELS = torch.arange(20) % 3


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"center": False},
        {"standardize": False},
        {"statistics": "batch"},
        {"statistics": "batch", "center": False},
        {"center": False, "standardize": False},
    ],
)
def test_the_probe_looks_at_the_step_that_is_made(options: dict[str, Any], bias: bool) -> None:
    """The step's own matrix, read off the gradients that it makes of a basis, gives the Hessian the same kappa."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5, bias=bias), nn.ReLU(), nn.Linear(5, 3)).double()
    bnp, x = BNP(model, rho=0.7, scale=False, **options), 1 + torch.randn(20, 4, dtype=torch.float64)
    F.cross_entropy(model(x + 1), LABELS).backward()
    bnp.precondition()
    model.zero_grad()
    found = {one.preconditioner: one for one in conditioning(model, x, layer="0", neuron=1, bnp=bnp)}["running_damped"]

    first = model[0]
    start = first.weight[1].detach() if not bias else torch.cat([first.bias[1:2].detach(), first.weight[1].detach()])

    def loss(parameters: torch.Tensor) -> torch.Tensor:
        z = x @ parameters[-4:] + (parameters[0] if bias else 0)
        hidden = first(x).detach()
        hidden = torch.cat([hidden[:, :1], z[:, None], hidden[:, 2:]], 1).relu()
        return F.cross_entropy(model[2](hidden), LABELS)

    hessian = torch.autograd.functional.hessian(loss, start)
    state = bnp.state_dict()
    columns = []
    for unit in torch.eye(len(start), dtype=torch.float64):
        bnp.load_state_dict(state)
        model.zero_grad()
        F.cross_entropy(model(x), LABELS).backward()
        first.weight.grad[1] = unit[-4:]
        if bias:
            first.bias.grad[1] = unit[0]
        bnp.precondition()
        columns.append(first.weight.grad[1] if not bias else torch.cat([first.bias.grad[1:2], first.weight.grad[1]]))
    values = torch.linalg.eigvals(torch.stack(columns, 1) @ hessian).real.sort(descending=True).values
    assert found.rank == len(values)
    assert found.kappa_preconditioned == pytest.approx((values[0] / values[-1]).item(), rel=1e-6)
