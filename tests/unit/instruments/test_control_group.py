from pathlib import Path

from llmprof.instruments.control_group import (
    cpu_limit,
    memory_headroom_bytes,
    memory_limit_bytes,
)
from tests.unit.instruments.system_tree import write_tree


def test_version_2_takes_the_tightest_of_the_group_and_its_ancestors(tmp_path: Path) -> None:
    root = write_tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/service/job",
            "sys/fs/cgroup/service/job/cpu.max": "max 100000",
            "sys/fs/cgroup/service/cpu.max": "250000 100000",
            "sys/fs/cgroup/service/job/memory.max": "4000",
            "sys/fs/cgroup/service/job/memory.current": "1500",
            "sys/fs/cgroup/service/job/memory.stat": "anon 900\ninactive_file 500",
            "sys/fs/cgroup/service/memory.max": "max",
        },
    )
    assert cpu_limit(root) == 2.5
    assert memory_limit_bytes(root) == 4000
    assert memory_headroom_bytes(root) == 4000 - (1500 - 500)


def test_version_1_with_the_path_of_the_host_as_containers_show_it(tmp_path: Path) -> None:
    root = write_tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/1a2b\n3:cpu,cpuacct:/docker/1a2b\n1:pids:/x",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "8000",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "9000",
            "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 200",
        },
    )
    assert cpu_limit(root) == 1.5
    assert memory_limit_bytes(root) == 8000
    assert memory_headroom_bytes(root) == 0


def test_no_limit(tmp_path: Path) -> None:
    root = write_tree(
        tmp_path,
        {
            "proc/self/cgroup": "3:cpu:/\n0::/",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
    )
    assert (cpu_limit(root), memory_limit_bytes(root)) == (None, None)
    assert memory_headroom_bytes(root) is None


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    assert (cpu_limit(tmp_path), memory_limit_bytes(tmp_path)) == (None, None)
