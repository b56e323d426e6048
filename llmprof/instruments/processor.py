"""The host's processor, as the kernel describes it."""

import os
import platform
import re
from pathlib import Path

from llmprof.instruments import control_group
from llmprof.instruments.system_file import read_text
from llmprof.schema.environment import CacheLevel, CpuInfo

_ISA = (
    *("avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx_vnni", "avx512_vnni"),
    *("avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
    *("asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2"),
)
"""x86 flags, then Arm features, as /proc/cpuinfo spells them."""


def cpu_info(root: Path = Path("/")) -> CpuInfo:
    """Model, cores, caches, instruction sets; what the system does not show is empty or null."""
    fields = _cpuinfo(root)
    usable = _usable_processors()
    quota_cores = control_group.cpu_limit(root)
    first = root / "sys/devices/system/cpu" / f"cpu{min(usable)}"
    return CpuInfo(
        model=_model(fields),
        logical_cores=os.cpu_count() or 1,
        usable_cores=_usable_cores(usable, quota_cores),
        caches=_caches(first),
        isa=_isa(fields),
        governor=read_text(first / "cpufreq/scaling_governor"),
        quota_cores=quota_cores,
    )


def is_virtualized(root: Path = Path("/")) -> bool | None:
    """Whether a hypervisor is below us (the CPUID bit on x86); None where nothing tells."""
    flags = _cpuinfo(root).get("flags")
    return None if flags is None else "hypervisor" in flags.split()


def _cpuinfo(root: Path) -> dict[str, str]:
    """Fields of the first processor in /proc/cpuinfo; empty where there is no such file."""
    first = (read_text(root / "proc/cpuinfo") or "").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _model(fields: dict[str, str]) -> str:
    if "model name" in fields:
        return fields["model name"]
    if "CPU part" in fields:  # Arm names no model
        ids = f"implementer {fields.get('CPU implementer', '?')}, part {fields['CPU part']}"
        return f"{platform.machine()} ({ids})"
    return platform.processor() or platform.machine() or "unknown"


def _isa(fields: dict[str, str]) -> tuple[str, ...]:
    present = set(fields.get("flags", fields.get("Features", "")).split())
    return tuple(name for name in _ISA if name in present)


def _usable_processors() -> set[int]:
    """Processors of this process's affinity; every one where the system knows no affinity."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _usable_cores(usable: set[int], limit: float | None) -> int:
    """Whole cores: a thread more than the quota pays for would be throttled."""
    return len(usable) if limit is None else max(1, min(len(usable), int(limit)))


def _caches(processor: Path) -> tuple[CacheLevel, ...]:
    """Data and unified caches, smallest level first."""
    found = []
    for index in sorted((processor / "cache").glob("index*")):
        level, size = read_text(index / "level"), read_text(index / "size")
        shared = read_text(index / "shared_cpu_list")
        if level and size and shared and read_text(index / "type") != "Instruction":
            found.append((int(level), _size_bytes(size), _listed(shared)))
    return tuple(
        CacheLevel(level=level, size_bytes=size_bytes, shared_by=shared_by)
        for level, size_bytes, shared_by in sorted(found)
        if size_bytes > 0
    )


def _size_bytes(text: str) -> int:
    """Kernel spelling of a cache's size: `48K`, `2048K`, `32M`."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if match is None:
        return 0
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def _listed(cpu_list: str) -> int:
    """How many processors `0-3,8` names."""
    count = 0
    for part in cpu_list.split(","):
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return count
