"""The most memory that this process held at once."""

import re
from pathlib import Path

_HIGH_WATER = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def forget_peak_memory(device: str) -> None:
    """Have a GPU's peak begin anew, from what is held now: the weights that were just loaded, or kept.

    A process may measure several runs, one after the other. A process's resident set has one high-water mark for its whole life.
    """
    if device.startswith("cuda"):
        import torch

        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device: str, root: Path = Path("/")) -> int | None:
    """Of a GPU what torch allocated there; of the CPU the resident set, loading included.

    None where the system does not tell (VmHWM of Linux is read).
    """
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    try:
        status = (root / "proc/self/status").read_text()
    except OSError:
        return None
    match = _HIGH_WATER.search(status)
    return 1024 * int(match[1]) if match else None
