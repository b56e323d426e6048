from pathlib import Path

import pytest

from llmprof.instruments.checks import machine
from tests.unit.instruments.environments import a_cpu, an_environment
from tests.unit.instruments.system_tree import write_tree


def test_cores_held_back_are_a_warning() -> None:
    assert machine.check_cores(an_environment(a_cpu(usable_cores=32))).status == "ok"
    held_back = machine.check_cores(an_environment(a_cpu()))
    assert held_back.status == "warn"
    assert "12 of 32" in held_back.detail


def test_a_container_with_a_cpu_quota_is_named() -> None:
    check = machine.check_cores(
        an_environment(a_cpu(logical_cores=2, usable_cores=1, quota_cores=1.5))
    )
    assert check.status == "warn"
    assert "1.50 cores' worth" in check.detail
    assert "--cpuset-cpus" in (check.remedy or "")


@pytest.mark.parametrize(
    ("governor", "status"), [(None, "ok"), ("performance", "ok"), ("powersave", "warn")]
)
def test_governor(governor: str | None, status: str) -> None:
    check = machine.check_governor(an_environment(a_cpu(governor=governor)))
    assert check.status == status
    assert bool(check.remedy) == (status == "warn")


@pytest.mark.parametrize(
    ("variables", "usable", "status"),
    [
        ({}, 12, "ok"),
        ({"OMP_NUM_THREADS": "12"}, 12, "ok"),
        ({"OMP_NUM_THREADS": "4"}, 12, "warn"),
        ({"OMP_PROC_BIND": "close"}, 12, "warn"),
        ({"OMP_PROC_BIND": "close"}, 32, "ok"),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, 12, "warn"),
        ({"GOMP_SPINCOUNT": "0"}, 12, "warn"),
        ({"OMP_WAIT_POLICY": "passive"}, 1, "ok"),
        ({"OMP_WAIT_POLICY": "active"}, 12, "ok"),
    ],
)
def test_openmp(variables: dict[str, str], usable: int, status: str) -> None:
    environment = an_environment(a_cpu(usable_cores=usable), variables=variables)
    check = machine.check_openmp(environment)
    assert check.status == status
    if status == "warn":
        assert next(iter(variables)) in check.detail


def test_little_memory_is_a_warning() -> None:
    assert machine.check_memory(an_environment()).status == "ok"
    low = machine.check_memory(an_environment(memory_available_bytes=1 << 30))
    assert low.status == "warn"
    assert "1.00 GiB of 16.0 GiB" in low.detail


@pytest.mark.parametrize(
    ("files", "status", "words"),
    [
        ({}, "missing", "no uncore counters in this virtual machine"),
        ({"sys/bus/event_source/devices/cpu/type": "4"}, "missing", "no uncore counters"),
        (
            {
                "sys/bus/event_source/devices/uncore_imc_0/type": "11",
                "proc/sys/kernel/perf_event_paranoid": "2",
            },
            "warn",
            "perf_event_paranoid is 2",
        ),
        (
            {
                "sys/bus/event_source/devices/amd_umc_0/type": "11",
                "proc/sys/kernel/perf_event_paranoid": "-1",
            },
            "ok",
            "amd_umc_0",
        ),
    ],
)
def test_dram_counters(tmp_path: Path, files: dict[str, str], status: str, words: str) -> None:
    check = machine.check_counters(an_environment(), write_tree(tmp_path, files))
    assert check.status == status
    assert words in check.detail


def test_bare_metal_without_counters_is_not_called_a_virtual_machine(tmp_path: Path) -> None:
    check = machine.check_counters(an_environment(virtualized=False), tmp_path)
    assert "virtual machine" not in check.detail
