"""A traced graph, compiled by inductor, or found in the folder where it keeps what it has compiled.

What is kept there has as its name a hash of the graph, of its inputs' shapes and of torch. The processor's vector
units and the number of threads, which the code depends on too, are added to it here: several machines may share the
folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.compiler import config
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv

Call = Callable[..., object]


def shapes() -> FakeTensorMode:
    """A mode in which tensors have shapes and no values, to describe a graph's inputs.

    It has a shape environment, although all shapes are fixed: without one inductor keeps nothing.
    """
    return FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)


def compile_graph(graph: GraphModule, inputs: Sequence[Tensor], options: Mapping[str, Any]) -> Call:
    """One function for the whole graph, which changes its inputs and has no result.

    Args:
        graph: of ATen operators, as ``make_fx`` traces it, that holds no tensor; it is changed.
        inputs: one for each of its placeholders, made in the mode of :func:`shapes`.
        options: of inductor.

    Raises:
        Exception: of any kind: the compiler raises what it stumbled on.
    """
    from torch._inductor import compile as compile_fx  # what these import takes seconds
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    graph.graph.output_node().args = ((),)  # any other result would be rebuilt after every call
    graph.recompile()
    tag = config.cache_key_tag
    if any(tensor.device.type == "cpu" for tensor in inputs):
        tag = f"{tag} {pick_vec_isa()} {torch.get_num_threads()}"
    with config.patch(cache_key_tag=tag), torch.no_grad():  # type: ignore[attr-defined]
        call: Call = compile_fx(graph, list(inputs), options=dict(options))
    return call
