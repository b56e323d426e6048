from pathlib import Path

from llmprof.instruments.host_memory import HostMemory, free_bytes_of_vm_stat, host_memory
from tests.unit.instruments.system_tree import write_tree

MEMINFO = "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    9000 kB"


def test_memory_of_the_host(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"proc/meminfo": MEMINFO})
    assert host_memory(root) == HostMemory(16000 * 1024, 9000 * 1024)


def test_a_container_s_limit_is_what_counts(tmp_path: Path) -> None:
    root = write_tree(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/memory.max": "4096000",
            "sys/fs/cgroup/memory.current": "96000",
        },
    )
    assert host_memory(root) == HostMemory(4_096_000, 4_000_000)


def test_a_limit_above_the_host_s_memory_changes_nothing(tmp_path: Path) -> None:
    root = write_tree(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "4:memory:/",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "5",
        },
    )
    assert host_memory(root) == HostMemory(16000 * 1024, 9000 * 1024)


def test_free_pages_of_macos() -> None:
    text = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
        "Pages free:                                3000.\n"
        "Pages active:                            400000.\n"
        "Pages inactive:                            2000.\n"
        "Pages speculative:                          500.\n"
    )
    assert free_bytes_of_vm_stat(text) == 5500 * 16384
