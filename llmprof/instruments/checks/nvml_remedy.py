"""What to do about something that NVML does not tell, by the reason that it gave."""

from collections.abc import Iterable
from typing import Final

from llmprof.instruments.nvml import HIDDEN_PROCESSES, SHARED_BOARD

_CHECK_DRIVER: Final = "Check the driver: nvidia-smi must list the GPU"
_REMEDIES: Final = (
    ("nvidia-ml-py", "Install it with: pip install nvidia-ml-py"),
    (
        "Shared Library Not Found",
        "Install the driver; in a container, start it with --gpus all and "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
    ("Driver Not Loaded", "Load the kernel module: sudo modprobe nvidia"),
    ("version mismatch", "Reboot, or reload the nvidia kernel module after the driver's update"),
    ("GPU is lost", "Reboot, or reset the GPU"),
    ("requires restart", "Reboot, or reset the GPU"),
    ("Permission", "Ask the administrator: the driver keeps this from users"),
    ("blocked the request", "Start the container with the device files of the GPU (--gpus all)"),
    (HIDDEN_PROCESSES, "Start the container with --pid=host"),
    (SHARED_BOARD, "Set CUDA_VISIBLE_DEVICES to the instance's own UUID (nvidia-smi -L lists it)"),
    ("does not find the device", _CHECK_DRIVER),
    ("Function Not Found", "Update the driver: it is older than the question"),
    ("Not Supported", "Nothing to fix: this device has no such sensor, and the field stays null"),
)
"""Words of a reason (NVML's own are those of nvmlErrorString), and what to do."""


def nvml_remedy(reasons: Iterable[str]) -> str:
    """One line for all of them; the first words that fit a reason decide."""
    return "; ".join(dict.fromkeys(map(_remedy, reasons))) or _CHECK_DRIVER


def _remedy(reason: str) -> str:
    fitting = (remedy for words, remedy in _REMEDIES if words.lower() in reason.lower())
    return next(fitting, _CHECK_DRIVER)
