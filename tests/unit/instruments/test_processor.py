import os
from pathlib import Path

import pytest

from llmprof.instruments.processor import cpu_info, is_virtualized
from llmprof.schema.environment import CacheLevel
from tests.unit.instruments.system_tree import write_tree

X86 = (
    "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9755\n"
    "flags\t\t: fpu avx2 fma hypervisor avx512f avx512_bf16 avx512_vnni\n\n"
    "processor\t: 1\nmodel name\t: another\nflags\t\t: fpu"
)
ARM = (
    "processor\t: 0\nFeatures\t: fp asimd asimdhp i8mm bf16 sve\n"
    "CPU implementer\t: 0x41\nCPU part\t: 0xd4f"
)
CACHE = "sys/devices/system/cpu/cpu2/cache"


def cache(index: int, level: int, kind: str, size: str, shared: str) -> dict[str, str]:
    folder = f"{CACHE}/index{index}"
    return {
        f"{folder}/level": str(level),
        f"{folder}/type": kind,
        f"{folder}/size": size,
        f"{folder}/shared_cpu_list": shared,
    }


@pytest.fixture(autouse=True)
def affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 3, 4, 5}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)


def test_a_server_processor(tmp_path: Path) -> None:
    root = write_tree(
        tmp_path,
        {
            "proc/cpuinfo": X86,
            "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor": "schedutil",
            **cache(0, 1, "Data", "48K", "2,10"),
            **cache(1, 1, "Instruction", "32K", "2,10"),
            **cache(2, 2, "Unified", "1024K", "2,10"),
            **cache(3, 3, "Unified", "32M", "0-7,8-15"),
        },
    )
    cpu = cpu_info(root)
    assert cpu.model == "AMD EPYC 9755"
    assert (cpu.logical_cores, cpu.usable_cores) == (16, 4)
    assert cpu.isa == ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16")
    assert cpu.governor == "schedutil"
    assert cpu.caches == (
        CacheLevel(level=1, size_bytes=48 * 1024, shared_by=2),
        CacheLevel(level=2, size_bytes=1024 * 1024, shared_by=2),
        CacheLevel(level=3, size_bytes=32 * 1024 * 1024, shared_by=16),
    )
    assert is_virtualized(root) is True


def test_arm_names_its_parts(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"proc/cpuinfo": ARM})
    cpu = cpu_info(root)
    assert "implementer 0x41, part 0xd4f" in cpu.model
    assert cpu.isa == ("asimd", "asimdhp", "bf16", "i8mm", "sve")
    assert is_virtualized(root) is None


def test_a_system_that_shows_nothing(tmp_path: Path) -> None:
    cpu = cpu_info(tmp_path)
    assert cpu.model
    assert (cpu.caches, cpu.isa, cpu.governor) == ((), (), None)


@pytest.mark.parametrize(
    ("quota", "cores"), [("150000", 1), ("250000", 2), ("50000", 1), ("900000", 4)]
)
def test_a_quota_leaves_whole_cores(tmp_path: Path, quota: str, cores: int) -> None:
    root = write_tree(
        tmp_path, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": f"{quota} 100000"}
    )
    assert cpu_info(root).usable_cores == cores
