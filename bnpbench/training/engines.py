"""How the steps of an epoch are run: operator by operator, compiled, or as a CUDA graph. All run the same ``Step``.

The lines that only a CUDA device can run are those of ``cuda_graph`` and ``make_workspaces``.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.graph import CodeGen

from bnpbench.bnp.inductor import compile_graph, shapes
from bnpbench.bnp.rewriter import Rewriter
from bnpbench.errors import NotApplicable
from bnpbench.measure.clock import Clock
from bnpbench.records.rows import CellRow
from bnpbench.training.state import TrainingState
from bnpbench.training.step import Step

Call = Callable[..., Any]


@dataclass(frozen=True)
class Preparation:
    """What an engine did before the first step.

    Attributes:
        call: runs a step; takes what the step takes.
        active: what really runs, such as ``graphed(compiled)``; where the programs of a step with a refresh and of one
            without differ in that, both, with a comma.
        cache_hits: graphs that inductor found compiled, in its cache on disk.
        cache_misses: graphs that it compiled.
        graph_bytes: that a CUDA graph keeps for what its step makes and drops: activations, gradients.
    """

    call: Call
    active: str
    cache_hits: int = 0
    cache_misses: int = 0
    graph_bytes: int | None = None

    def columns(self) -> CellRow:
        """What the ``cells`` table tells of it; unlike this object it keeps no tensor."""
        return {
            "engine_active": self.active,
            "cache_hits": self.cache_hits,
            "cache_misses": self.cache_misses,
            "graph_memory_bytes": self.graph_bytes,
        }


@dataclass(frozen=True)
class Recorded:
    """Work that was recorded: ``replay`` does it again; ``bytes`` are kept for what it makes and drops."""

    replay: Callable[[], None]
    bytes: int | None = None


def eager(step: Step, sample: tuple[Tensor, ...]) -> Preparation:
    """Operator by operator, as PyTorch runs by default."""
    return Preparation(step, "eager")


def compiled(step: Step, sample: tuple[Tensor, ...]) -> Preparation:
    """The whole step - gather, forward, loss, gradients, preconditioning, update - as one graph by inductor.

    ``make_fx`` traces it once, with the optimizer told that it is being compiled, so that a tensor learning rate is
    never read back. Hooks, statistics and bookkeeping on the host happen while tracing and cost nothing after. The
    graph needs no second tracing, by dynamo, and no step a guard: every call is like the sample.

    Raises:
        NotApplicable: the step scales its loss.
        Exception: of any kind: the compiler raises what it stumbled on.
    """
    if step.scaler is not None:
        raise NotApplicable('precision = "fp16" is not compiled: an overflowed step is left out by a fused optimizer')
    with _told_of_compiling():
        step(*sample)  # builds the optimizer's state, which would else be built inside the graph
        graph = make_fx(step)(*sample)
    for parameter in step.parameters:
        parameter.grad = None  # what the trace left behind
    graph, state = _lifted(graph)
    mode = shapes()
    hits = counters["inductor"]["fxgraph_cache_hit"]
    whole = compile_graph(
        graph,
        [mode.from_tensor(tensor) for tensor in (*state, *sample)],
        {
            "cpp_wrapper": step.labels.device.type == "cpu",
            # Its kernels and what calls them are compiled apart, each with a header that g++ reads ready: a sixth less
            # of its time, for the same instructions.
            "cpp_wrapper_build_separate": True,
            "aot_inductor.compile_wrapper_opt_level": "O3",
            "reorder_for_locality": False,  # it moves sums over rows before the product they are gathered for
        },
    )

    @torch.no_grad()
    def call(*arguments: Tensor) -> None:
        whole(*state, *arguments)

    call(*sample)  # loads what is loaded late
    found = counters["inductor"]["fxgraph_cache_hit"] > hits
    return Preparation(call, "compiled", cache_hits=int(found), cache_misses=int(not found))


def _lifted(traced: GraphModule) -> tuple[GraphModule, list[Tensor]]:
    """A traced graph whose first arguments are the tensors that it held; what the profiler was told is left out.

    Returns:
        The graph, and these tensors in their order.
    """
    held: dict[str, Tensor] = {}
    lifted: dict[str, Node] = {}
    nodes = traced.graph
    first = next(iter(nodes.nodes))
    for node in list(nodes.nodes):
        if node.op == "get_attr":
            name = str(node.target)
            if name not in lifted:
                held[name] = getattr(traced, name)
                with nodes.inserting_before(first):
                    lifted[name] = nodes.placeholder(f"held{len(lifted)}")
            node.replace_all_uses_with(lifted[name])
            nodes.erase_node(node)
    for node in reversed(list(nodes.nodes)):
        if "profiler" in str(node.target):
            nodes.erase_node(node)
        elif node.op == "placeholder":
            node.meta.clear()  # inductor would read shapes off it, and expects them of every node then
    nodes.set_codegen(CodeGen())
    return GraphModule({}, nodes), list(held.values())


def graphed(step: Step, sample: tuple[Tensor, ...]) -> Preparation:
    """A step recorded once as a CUDA graph and replayed on the same tensors: the compiled one, where it compiles.

    Raises:
        RuntimeError: the step cannot be recorded, as one that waits for the device.
    """
    try:
        inner = eager(step, sample) if step.scaler is not None else compiled(step, sample)
    except Exception:  # of any kind: the compiler raises what it stumbled on
        traceback.print_exc()  # into the cell's log
        for group in step.optimizer.param_groups:  # run eagerly, the for-each kernels read the learning rate back
            group["foreach"], group["fused"] = False, True
        inner = eager(step, sample)
    try:
        return captured(inner, sample, cuda_graph)
    except Exception as error:
        remedy = 'take engine = "eager" or "compiled"'
        raise RuntimeError(f"the step cannot be recorded as a CUDA graph, {remedy}: {error}") from error


def captured(
    inner: Preparation, sample: tuple[Tensor, ...], record: Callable[[Callable[[], object]], Recorded]
) -> Preparation:
    """A recorded step.

    Args:
        inner: has the step to record.
        sample: arguments of a step, whose shapes every step shares.
        record: runs a function without arguments, and gives it recorded.
    """
    inputs = [argument.clone() for argument in sample]
    recorded = record(lambda: inner.call(*inputs))

    def call(*arguments: Tensor) -> None:
        for place, argument in zip(inputs, arguments, strict=True):
            place.copy_(argument)
        recorded.replay()

    return replace(inner, call=call, active=f"graphed({inner.active})", graph_bytes=recorded.bytes)


def cuda_graph(work: Callable[[], object]) -> Recorded:
    """Record ``work`` after three runs on a side stream, as torch asks for.

    Raises:
        Exception: what ``work`` raised, of which the end of a broken capture would only say that there was something.
    """
    current, side = torch.cuda.current_stream(), _side_stream(torch.cuda.current_device())
    side.wait_stream(current)
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    current.wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    cause: Exception | None = None
    try:
        with (
            torch.cuda.stream(current),
            torch.cuda.graph(graph, stream=side),
        ):  # the latter leaves its stream, if broken
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            try:
                work()
            except Exception as error:
                cause = error
            kept = torch.cuda.max_memory_allocated() - before
    except Exception as error:
        raise cause or error from None
    if cause is not None:
        raise cause
    return Recorded(graph.replay, kept)


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """Where graphs of a device are recorded: cuBLAS keeps a workspace for every stream that it was called on."""
    return torch.cuda.Stream(device)


def make_workspaces(device: torch.device) -> None:
    """Have cuBLAS allocate what it keeps for each stream and thread, so that no cell is charged with it."""
    for stream in (torch.cuda.current_stream(device), _side_stream(torch.cuda.current_device())):
        with torch.cuda.stream(stream), contextlib.suppress(torch.OutOfMemoryError):  # the cells will say so
            rows, weight, bias = (torch.ones(shape, device=device, requires_grad=True) for shape in ((8, 8), (8, 8), 8))
            torch.nn.functional.linear(rows, weight, bias).sum().backward()
    torch.cuda.synchronize(device)


ENGINES: dict[str, Callable[[Step, tuple[Tensor, ...]], Preparation]] = {
    "eager": eager,
    "compiled": compiled,
    "graphed": graphed,
}


def prepare(name: str, step: Step, state: TrainingState, sample: tuple[Tensor, ...]) -> Preparation:
    """Make an engine ready: trace, compile, record. Weights, statistics, moments and random streams are as before.

    Args:
        name: of the engine.
        step: what it runs.
        state: what a step changes.
        sample: arguments of a step, any of them.
    """
    if name == "eager":
        return eager(step, sample)
    before = state.snapshot()
    preparation = in_turns(ENGINES[name], step, sample)
    state.restore(before)
    return preparation


def in_turns(
    engine: Callable[[Step, tuple[Tensor, ...]], Preparation], step: Step, sample: tuple[Tensor, ...]
) -> Preparation:
    """An engine's preparation of a step; of each kind of step where the preconditioner has several of them.

    A step in which it refreshes what it keeps is another program than one in which it does not. Which of them is due,
    the host decides before each step.
    """
    rewriter = step.bnp
    if not isinstance(rewriter, Rewriter):
        return engine(step, sample)
    parts = dict[bool, Preparation]()
    for refresh in rewriter.turns:
        with rewriter.turn(refresh):
            parts[refresh] = engine(step, sample)

    def call(*arguments: Tensor) -> None:
        parts[rewriter.refreshes()].call(*arguments)
        rewriter.advance()

    several = parts.values()
    active = ", ".join(dict.fromkeys(part.active for part in several))  # the one may compile and the other not
    kept = [part.graph_bytes for part in several if part.graph_bytes is not None]
    return Preparation(
        call,
        active,
        sum(part.cache_hits for part in several),
        sum(part.cache_misses for part in several),
        sum(kept) if kept else None,
    )


def run(
    call: Call, batches: Iterable[tuple[Tensor, ...]], lr: Tensor, rates: Mapping[int, float], clock: Clock
) -> None:
    """One step a batch.

    Args:
        call: of the engine's preparation.
        batches: the step's arguments.
        lr: the optimizer's 0-d learning rate.
        rates: the learning rate to set before a step, by the step's number, where it changes.
        clock: is told of every step's end.
    """
    lap = clock.lap
    for number, batch in enumerate(batches):
        if number in rates:
            lr.fill_(rates[number])
        call(*batch)
        lap()


@contextlib.contextmanager
def _told_of_compiling() -> Iterator[None]:
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = False
