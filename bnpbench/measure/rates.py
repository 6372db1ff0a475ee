"""What this machine can do at most: memory bandwidth, matrix products, and operators that do next to nothing.

Measured through torch, as training would reach it, and kept by ``measure.known`` under the environment's id: a
run on the same machine writes them into its ``environment.json``, and the report sets the steps beside them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import psutil
import torch
from torch import Tensor

from bnpbench.measure.known import usable_cores
from bnpbench.records.documents import Rate, Rates

REPETITIONS = 7
SMALLEST_ARRAY = 2**26  # bytes; four times the last caches where those are more, so that nothing is read from it
PROCESSORS = Path("/sys/devices/system/cpu")
PRODUCT = {"cpu": 1536, "cuda": 8192}  # rows and columns
LAUNCHES = 2000


def measure(only: str | None = None) -> Rates:
    """All rates of the CPU, with one thread and with all cores that it may use, and of the first CUDA device, if any.

    Args:
        only: cpu or cuda, to measure that alone.
    """
    before = torch.get_num_threads()
    rates: list[Rate | None] = []
    for threads in dict.fromkeys((1, usable_cores())) if only != "cuda" else ():
        torch.set_num_threads(threads)
        rates += _rates(torch.device("cpu"), threads)
    torch.set_num_threads(before)
    if only != "cpu" and torch.cuda.is_available():
        rates += _rates(torch.device("cuda"), None)
    return Rates(measured=f"{datetime.now(UTC):%Y-%m-%d}", libraries=libraries(), rates=rates)


def libraries() -> list[str]:
    """The libraries that torch multiplies matrices with on the CPU, as it names them."""
    wanted = ("Math Kernel Library", "MKL-DNN", "OpenBLAS", "Accelerate")
    lines = (line.strip(" -") for line in torch.__config__.show().splitlines())
    return [line for line in lines if any(name in line for name in wanted) and "Build settings" not in line]


def _rates(device: torch.device, threads: int | None) -> list[Rate]:
    precisions = ("float32", "tf32", "bf16") if device.type == "cuda" else ("float32",)
    works = {"bandwidth": _triad, **dict.fromkeys(precisions, _product), "operators": _operators}
    if device.type == "cuda":
        works["recorded"] = _recorded
    rates = {}
    for quantity, prepare in works.items():
        torch.set_float32_matmul_precision("high" if quantity == "tf32" else "highest")
        rates[quantity] = _rate(
            device, threads, quantity, prepare(device, torch.bfloat16 if quantity == "bf16" else torch.float32)
        )
    torch.set_float32_matmul_precision("highest")
    if device.type == "cpu":
        kernels = {"torch.mm": rates["float32"], **dict(_others(device, threads))}
        fastest = max(kernels, key=lambda name: kernels[name].median)
        rates["core"] = kernels[fastest].model_copy(update={"quantity": "core", "kernel": fastest})
    return list(rates.values())


def _rate(device: torch.device, threads: int | None, quantity: str, work: Work) -> Rate:
    call, amount = work
    found = [amount / _seconds(call, device) for _ in range(1 + REPETITIONS)][1:]  # the first warms up
    return Rate(
        device=device.type,
        threads=threads,
        quantity=quantity,
        median=median(found),
        low=min(found),
        high=max(found),
        repetitions=REPETITIONS,
    )


Work = tuple[Callable[[], object], int]
"""What to time, and how much of its quantity that is."""


def _triad(device: torch.device, dtype: torch.dtype) -> Work:
    length = _array_bytes(device) // dtype.itemsize
    a, b, c = (torch.full((length,), value, dtype=dtype, device=device) for value in (0.0, 1.0, 2.0))
    return lambda: torch.add(b, c, alpha=3.0, out=a), 3 * dtype.itemsize * length


def _product(device: torch.device, dtype: torch.dtype) -> Work:
    size = PRODUCT[device.type]
    x, y, product = (torch.randn(size, size, device=device).to(dtype) for _ in range(3))
    return lambda: torch.mm(x, y, out=product), 2 * size**3


def _others(device: torch.device, threads: int | None) -> Iterator[tuple[str, Rate]]:
    """The same product by kernels that ``torch.mm`` does not call, as far as they can be had here."""
    size = PRODUCT[device.type]
    x, y = torch.randn(size, size), torch.randn(size, size)
    for name, make in KERNELS.items():
        with suppress(Exception):  # of any kind: a library that torch was built without, no compiler
            yield name, _rate(device, threads, "float32", (make(x, y), 2 * size**3))


def _by_onednn(x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    """x y, with y in the library's own order of blocks."""
    blocks = torch.ops.mkldnn._reorder_linear_weight(y.t().contiguous(), len(x))
    return lambda: torch.ops.mkldnn._linear_pointwise(x, blocks, None, "none", [], "")


def _by_inductor(x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    """x y by the template in C++ of torch's compiler, which takes a y that never changes; compiles for seconds."""
    product = torch.nn.Linear(y.shape[0], y.shape[1], bias=False).eval()
    product.weight.data.copy_(y.t())
    options = {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP", "compile_threads": 1}
    with (
        torch.no_grad(),
        torch._inductor.utils.fresh_cache(),
        torch._inductor.config.patch(options),
        _unheard("torch.utils.cpp_extension"),  # which would warn whoever has CUDA's compiler and no GPU
    ):
        compiled = torch.compile(product, dynamic=False)
        compiled(x)
    return torch.no_grad()(lambda: compiled(x))


@contextmanager
def _unheard(name: str) -> Iterator[None]:
    """Keep the warnings of one logger from the terminal meanwhile."""

    def severe(record: logging.LogRecord) -> bool:
        return record.levelno > logging.WARNING

    logger = logging.getLogger(name)
    logger.addFilter(severe)
    try:
        yield
    finally:
        logger.removeFilter(severe)


KERNELS: dict[str, Callable[[Tensor, Tensor], Callable[[], Tensor]]] = {"oneDNN": _by_onednn, "inductor": _by_inductor}


def _operators(device: torch.device, dtype: torch.dtype) -> Work:
    number = torch.zeros((), dtype=dtype, device=device)

    def launch() -> None:
        for _ in range(LAUNCHES):
            number.add_(1.0)

    return launch, LAUNCHES


def _recorded(device: torch.device, dtype: torch.dtype) -> Work:
    """The same additions from a CUDA graph."""
    launch, amount = _operators(device, dtype)
    launch()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    return graph.replay, amount


def _array_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return min(2**30, torch.cuda.get_device_properties(device).total_memory // 16)
    return int(min(max(SMALLEST_ARRAY, 4 * _last_caches()), psutil.virtual_memory().available // 16))


def _last_caches() -> int:
    """Bytes of all third-level caches together, where the system tells; some processors have many."""
    sizes: dict[str, int] = {}
    for cache in PROCESSORS.glob("cpu[0-9]*/cache/index3"):
        try:
            size = int((cache / "size").read_text().strip().removesuffix("K")) * 1024
            sizes[(cache / "shared_cpu_list").read_text()] = size
        except (OSError, ValueError):
            continue
    return sum(sizes.values())


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin
