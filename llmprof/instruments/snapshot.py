"""The machine and the software at one moment: what two runs must share to be compared."""

import hashlib
import json
import math
import os
import platform
from collections.abc import Mapping

from llmprof import __version__
from llmprof.errors import InputError
from llmprof.instruments.gpu_info import gpu_info
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.libraries import library_versions, python_version
from llmprof.instruments.processor import cpu_info, is_virtualized
from llmprof.schema.environment import CpuInfo, Environment, GpuInfo
from llmprof.units import significant

_VARIABLE_PREFIXES = ("OMP_", "GOMP_", "KMP_", "NCCL_")
_VARIABLES = frozenset(
    {
        *("MKL_NUM_THREADS", "MKL_DYNAMIC", "MKL_ENABLE_INSTRUCTIONS", "OPENBLAS_NUM_THREADS"),
        *("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE"),
        *("NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER", "MALLOC_ARENA_MAX"),
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING"),
        *("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING", "CUBLAS_WORKSPACE_CONFIG"),
        *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
        *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "TORCHINDUCTOR_FREEZING"),
    }
)
"""Never the whole environment: it holds secrets and paths."""


def snapshot(device: str, threads: int) -> Environment:
    """Environment of a run on `device` (`cpu`, `cuda` or `cuda:N`) with so many CPU threads.

    Imports torch for a CUDA device only. Raises CapabilityError where that device cannot be used.
    """
    resolved = "cuda:0" if device == "cuda" else device
    cpu = cpu_info()
    gpu = None if resolved == "cpu" else gpu_info(resolved)
    memory = host_memory()
    versions = library_versions()
    return Environment(
        device=resolved,
        device_name=cpu.model if gpu is None else gpu.name,
        cpu=cpu,
        gpu=gpu,
        memory_bytes=memory.total_bytes,
        memory_available_bytes=memory.available_bytes,
        virtualized=is_virtualized(),
        os=platform.platform(),
        python=python_version(),
        versions=versions,
        threads=threads,
        variables=speed_variables(os.environ),
        fingerprint=fingerprint(cpu, gpu, versions, threads),
    )


def resolve_threads(settings_threads: int | None, *, processes: int = 1) -> int:
    """CPU threads of a run: as set, else every core that affinity and control groups leave.

    Of `processes` on this machine that work at once, each has an equal share of the cores.

    Raises InputError for more threads than such cores: they would only wait for each other.
    """
    cpu = cpu_info()
    usable = max(1, cpu.usable_cores // processes)
    if settings_threads is None:
        return usable
    if settings_threads > usable:
        raise InputError(
            f"execution.threads is {settings_threads}, but this process may use {usable} cores"
            + _quota_words(cpu),
            remedy=f"Set execution.threads to at most {usable}, or leave it out",
        )
    return settings_threads


def _quota_words(cpu: CpuInfo) -> str:
    if cpu.quota_cores is None:
        return ""
    return f" (a control group allows {significant(cpu.quota_cores)} cores' worth of CPU time)"


def llc_bytes(environment: Environment) -> int:
    """Last-level cache that the run's device can fill; 0 where the system tells of none.

    On a CPU every instance that the usable cores reach counts, since threads share the work.
    """
    if environment.gpu is not None:
        return environment.gpu.l2_bytes or 0
    if not environment.cpu.caches:
        return 0
    last = max(environment.cpu.caches, key=lambda cache: cache.level)
    return last.size_bytes * math.ceil(environment.cpu.usable_cores / last.shared_by)


def speed_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Those that change speed, by an allow-list, sorted. Values that are paths are left out."""
    return {
        name: value
        for name, value in sorted(variables.items())
        if (name in _VARIABLES or name.startswith(_VARIABLE_PREFIXES)) and "/" not in value
    }


def fingerprint(
    cpu: CpuInfo, gpu: GpuInfo | None, versions: Mapping[str, str], threads: int
) -> str:
    """12 hex digits over the kind of device, torch, FlashInfer, threads and our own minor version.

    Two equal machines have the same fingerprint: it names no serial number.
    """
    processor = [cpu.model, cpu.usable_cores, cpu.isa, [cache.size_bytes for cache in cpu.caches]]
    device = None
    if gpu is not None:
        device = [gpu.name, gpu.memory_bytes, gpu.multiprocessors, gpu.mig, gpu.power_limit_w]
    software: list[object] = [
        versions.get("torch"),
        versions.get("cuda"),
        __version__.split(".")[:2],
    ]
    attention = versions.get("flashinfer-python")
    if attention is not None:  # machines without it keep the fingerprint that they had
        software.append(attention)
    text = json.dumps([processor, device, software, threads])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
