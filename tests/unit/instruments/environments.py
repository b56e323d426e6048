"""Environments for the tests of this folder, with the fields that a test cares about."""

from typing import Any

from llmprof.schema.environment import CacheLevel, CpuInfo, Environment, GpuInfo


def a_cpu(**changes: Any) -> CpuInfo:
    """12 usable cores of 32, two of whose last-level caches they reach."""
    fields: dict[str, Any] = {
        "model": "AMD EPYC 9755",
        "logical_cores": 32,
        "usable_cores": 12,
        "caches": (
            CacheLevel(level=3, size_bytes=32 << 20, shared_by=8),
            CacheLevel(level=2, size_bytes=1 << 20, shared_by=1),
        ),
        "isa": ("avx2", "avx512_vnni"),
        "governor": None,
    }
    return CpuInfo(**(fields | changes))


def a_gpu(**changes: Any) -> GpuInfo:
    fields: dict[str, Any] = {
        "name": "NVIDIA H100",
        "uuid": "0b6e",
        "memory_bytes": 85_000_000_000,
        "compute_capability": "9.0",
        "multiprocessors": 132,
        "l2_bytes": 50 << 20,
        "driver_version": "570.86",
        "power_limit_w": 700.0,
        "max_sm_clock_hz": 1.98e9,
        "mig": False,
    }
    return GpuInfo(**(fields | changes))


def an_environment(
    cpu: CpuInfo | None = None, gpu: GpuInfo | None = None, **changes: Any
) -> Environment:
    known = a_cpu() if cpu is None else cpu
    fields: dict[str, Any] = {
        "device": "cpu" if gpu is None else "cuda:0",
        "device_name": known.model if gpu is None else gpu.name,
        "cpu": known,
        "gpu": gpu,
        "memory_bytes": 16 << 30,
        "memory_available_bytes": 12 << 30,
        "virtualized": True,
        "os": "Linux",
        "python": "CPython 3.12.4",
        "versions": {"torch": "2.13.0"},
        "threads": 2,
        "fingerprint": "0" * 12,
    }
    return Environment(**(fields | changes))
