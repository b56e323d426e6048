"""How much memory the host has, and how much of it a new allocation can get."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from llmprof.errors import CapabilityError
from llmprof.instruments import control_group


@dataclass(frozen=True, slots=True)
class HostMemory:
    total_bytes: int
    """Physical memory, or the limit of the control group where that is less."""
    available_bytes: int


def host_memory(root: Path = Path("/")) -> HostMemory:
    """Total and available bytes. Raises CapabilityError where the system tells neither."""
    meminfo = root / "proc/meminfo"
    memory = _linux(meminfo) if meminfo.exists() else _darwin()
    limit = control_group.memory_limit_bytes(root)
    headroom = control_group.memory_headroom_bytes(root)
    return HostMemory(
        total_bytes=memory.total_bytes if limit is None else min(memory.total_bytes, limit),
        available_bytes=(
            memory.available_bytes if headroom is None else min(memory.available_bytes, headroom)
        ),
    )


def _linux(meminfo: Path) -> HostMemory:
    kib = {
        name: int(rest.split()[0])
        for name, _, rest in (line.partition(":") for line in meminfo.read_text().splitlines())
    }
    return HostMemory(kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024)


def _darwin() -> HostMemory:
    try:
        total_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        text = subprocess.run(["vm_stat"], capture_output=True, text=True, check=True).stdout
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        raise CapabilityError(
            f"this system does not tell how much memory is free ({error})",
            remedy="llmprof runs on Linux and macOS",
        ) from error
    return HostMemory(total_bytes, free_bytes_of_vm_stat(text))


def free_bytes_of_vm_stat(text: str) -> int:
    """Free, inactive and speculative pages of macOS's `vm_stat`: what can be had at once."""
    page_bytes = int(re.findall(r"page size of (\d+) bytes", text)[0])
    pages = re.findall(r"^Pages (?:free|inactive|speculative): +(\d+)\.", text, re.MULTILINE)
    return page_bytes * sum(map(int, pages))
