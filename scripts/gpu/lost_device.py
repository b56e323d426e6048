"""A GPU after an error that stays, such as an illegal address: all that a process asks of it fails.

Only another process helps. Cells and tests that have ended are on disk: it goes on with the others.
"""

from typing import Final

LOST: Final = 75
"""Exit status of a process that wants to go on as another one (EX_TEMPFAIL of sysexits.h)."""


class LostDeviceError(Exception):
    """Nothing more can be measured in this process."""


def is_lost(device: str) -> bool:
    """Whether the GPU refuses even to be waited for; never one that this process has not touched."""
    if device == "cpu":
        return False
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False
