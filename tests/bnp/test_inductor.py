"""What inductor has compiled is found again, by whatever may run it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch._inductor import cpu_vec_isa
from torch._inductor.utils import fresh_cache
from torch.fx.experimental.proxy_tensor import make_fx

from bnpbench.bnp.inductor import compile_graph, shapes


@pytest.fixture(autouse=True)
def cache() -> Iterator[None]:
    threads = torch.get_num_threads()
    with fresh_cache():
        yield
    torch.set_num_threads(threads)


def decayed(weight: Tensor, gradient: Tensor) -> None:
    weight.mul_(0.5).sub_(gradient)


def is_found(length: int) -> bool:
    """Whether a function of so many numbers was there; it does what it is to do in any case."""
    before = counters["inductor"]["fxgraph_cache_hit"]
    with shapes():
        inputs = [torch.empty(length), torch.empty(length)]
        graph = make_fx(decayed)(*inputs)
    call = compile_graph(graph, inputs, {})
    weight = torch.full((length,), 4.0)
    assert call(weight, torch.ones(length)) in ((), [], None)
    assert weight.tolist() == [1.0] * length
    return counters["inductor"]["fxgraph_cache_hit"] > before


def test_it_is_compiled_once() -> None:
    assert [is_found(length) for length in (8, 8, 9)] == [False, True, False]


def test_but_anew_for_other_threads_and_other_vector_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is made for both; the folder may be shared by machines, and by cells with other threads."""
    torch.set_num_threads(1)
    found = [is_found(8)]
    torch.set_num_threads(2)
    found.append(is_found(8))
    units = cpu_vec_isa.pick_vec_isa()
    other = type("Other", (type(units),), {"__str__": lambda _: f"{units} of another processor"})()
    monkeypatch.setattr(cpu_vec_isa, "pick_vec_isa", lambda: other)
    found += [is_found(8), is_found(8)]
    assert found == [False, False, False, True]
