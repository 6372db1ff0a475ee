"""What is known of this machine without torch, whose import takes seconds: enough to name its environment.

A run that finds everything finished needs no more. Whatever measures asks ``measure.environment`` in a child, which
tells the same of hardware, torch, CUDA and driver, and names the environment by the same hash.
"""

from __future__ import annotations

import json
import os
import platform
import runpy
import subprocess
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from bnpbench.cache import user_cache
from bnpbench.measure.driver import driver_count, driver_cuda, driver_device, driver_failure
from bnpbench.measure.measurement import MEASUREMENT
from bnpbench.records.documents import Details, Environment, GpuDetails, Hardware, Rates, Software
from bnpbench.text import short_hash


def known(gpu: int = 0) -> Environment | None:
    """The environment as a child would name it; None where only torch can tell.

    Args:
        gpu: number of the CUDA device that is used, where there is one.

    Returns:
        Hardware and software, but for what torch alone knows of itself; of the details what decides how cells are run;
        the rates that were measured.
    """
    torch = torch_build()
    if torch is None or torch.get("hip") is not None:
        return None
    cuda: str | None = torch["cuda"]
    gpus = 0 if cuda is None else _usable(cuda)
    device = driver_device(gpu) if gpus and gpu < gpus else None
    if gpus is None or (gpu < gpus and device is None):
        return None
    hardware = hardware_with(None if device is None else device.name, gpus)
    software = software_with(torch["__version__"], cuda)
    details = Details(affinity=affinity(), gpu=None if device is None else GpuDetails(capability=device.capability))
    return named(hardware, software, details)


def named(hardware: Hardware, software: Software, details: Details) -> Environment:
    """An environment with its id, and the peak rates that were measured under it.

    Args:
        hardware, software: what the id hashes.
        details: what it does not.
    """
    identity = environment_id(hardware, software)
    return Environment(
        id=identity,
        hardware=hardware,
        software=software,
        measurement=MEASUREMENT,
        details=details,
        rates=kept(identity),
    )


def _usable(cuda: str) -> int | None:
    """How many devices a torch that was built for this CUDA can use; None where torch has to say, and why."""
    count, works_with = driver_count(), driver_cuda()
    if driver_failure() is not None or (count and (works_with is None or works_with < int(cuda.partition(".")[0]))):
        return None
    return count


def torch_build() -> dict[str, Any] | None:
    """The names in torch's own ``version.py``, which torch takes its version and its CUDA's from; None without one."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        found = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    except OSError:
        return None
    return found if {"__version__", "cuda"} <= found.keys() else None


def environment_id(hardware: Hardware, software: Software) -> str:
    """12 hex digits over what names an environment: hardware, torch, CUDA, driver, and what a measured number means."""
    deciding = hardware.document() | software.model_dump(include={"torch", "cuda", "driver"})
    return short_hash(json.dumps(deciding | {"measurement": MEASUREMENT}, sort_keys=True))


def hardware_with(gpu: str | None, gpus: int) -> Hardware:
    """This machine with so many CUDA devices, of which one is used."""
    return Hardware(cpu=cpu_model(), cores=_cores(), gpu=gpu, gpus=gpus)


def software_with(torch: str, cuda: str | None) -> Software:
    """What runs with a torch that was built for this CUDA."""
    return Software(
        torch=torch,
        torchvision=version("torchvision"),
        cuda=cuda,
        driver=gpu_driver(),
        python=platform.python_version(),
    )


def affinity() -> list[int] | None:
    """The cores that this process, and thus its children, may use; None where the system does not tell."""
    return sorted(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else None


def usable_cores() -> int:
    """How many cores this process may use, one thread each; ``executor.usable_cores`` tells it of an environment."""
    return min(_cores(), len(affinity() or range(_cores())))


def _cores() -> int:
    return psutil.cpu_count(logical=False) or os.cpu_count() or 1


def keep(environment: str, found: Rates) -> Path:
    """Write the rates of an environment into the user's cache folder. Raises OSError."""
    path = _path(environment)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(found.document(), indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def kept(environment: str) -> Rates | None:
    """The rates that were measured in an environment; None where none were, or they cannot be read."""
    try:
        return Rates.model_validate(json.loads(_path(environment).read_text(encoding="utf-8")))
    except (OSError, ValueError):  # also pydantic's own
        return None


def _path(environment: str) -> Path:
    return user_cache() / "rates" / f"{environment}.json"


def cpu_model() -> str:
    """The processor's name, as its maker gives it."""
    brand = _printed("sysctl", "-n", "machdep.cpu.brand_string") if platform.system() == "Darwin" else None
    return processor_name(read("/proc/cpuinfo") or "", brand, platform.machine())


def processor_name(cpuinfo: str, brand: str | None, architecture: str) -> str:
    """A name that tells this processor from others.

    Args:
        cpuinfo: Linux' ``/proc/cpuinfo``; empty elsewhere.
        brand: macOS' name of it, if there is one.
        architecture: such as ``aarch64``; all that is told where nothing else is known.
    """
    lines = cpuinfo.splitlines()
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    if brand:
        return brand
    arm = [line.partition(":") for line in lines if line.startswith(("CPU implementer", "CPU part", "CPU variant"))]
    named = dict.fromkeys(f"{name.strip().removeprefix('CPU ')} {value.strip()}" for name, _, value in arm)
    return " ".join([architecture, *named])


@cache
def processor_kind() -> str:
    """What tells apart the processors for which a compiler makes other code, asked for code for this very one."""
    return kind_of(read("/proc/cpuinfo") or "", cpu_model())


def kind_of(cpuinfo: str, name: str) -> str:
    """A hash of what a processor is and what it can do; of neither its number, its clock nor its load.

    Args:
        cpuinfo: Linux' ``/proc/cpuinfo``; empty elsewhere.
        name: of the processor, by which all else is told where ``cpuinfo`` does not.
    """
    telling = ("vendor_id", "cpu family", "model", "cache size", "flags", "CPU ", "Features", "isa")
    lines = {line for line in cpuinfo.splitlines() if line.startswith(telling)}
    return short_hash("\n".join([platform.machine(), name, *sorted(lines)]))


def gpu_driver() -> str | None:
    """Version of the NVIDIA driver, or None where there is none."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def _printed(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def read(path: str) -> str | None:
    """A small file's text; None where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
