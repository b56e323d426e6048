"""Which device a run is on."""

import torch

from llmprof.errors import CapabilityError


def resolve_device(name: str, *, local_rank: int = 0) -> str:
    """`auto`, `cpu`, `cuda` or `cuda:N` -> `cpu` or `cuda:N`; `auto` takes a GPU where there is one.

    Of several processes on a machine each takes the GPU of its `local_rank`. A GPU becomes torch's
    current device: graphs are captured, and streams made, on that one wherever none is named.

    Raises:
        CapabilityError: a GPU was asked for that torch does not see.
    """
    if name == "cpu":
        return name
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto" and not num_gpus:
        return "cpu"
    index = int(name.partition(":")[2] or local_rank)
    if index < num_gpus:
        torch.cuda.set_device(index)
        return f"cuda:{index}"
    raise CapabilityError(
        f"device '{name}' is not available: torch {torch.__version__} sees {num_gpus} CUDA devices",
        remedy="Set device=cpu, or install a CUDA build of torch and a driver",
    )
