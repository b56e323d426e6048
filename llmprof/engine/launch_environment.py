"""Whether torchrun started this process as one of several, and as which of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from llmprof.errors import CapabilityError, InputError
from llmprof.schema.settings import RunConfig

_STARTED: Final = "TORCHELASTIC_RUN_ID"
"""Set by torchrun alone: a RANK by itself may be left over from a batch job."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One process of a group; each holds one rank of the model."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    """Among the processes of this machine."""
    local_size: int = 1

    @property
    def leads(self) -> bool:
        """Measures, writes and speaks; the others compute their part."""
        return self.rank == 0


def launch_from(environ: Mapping[str, str]) -> Launch:
    """By the variables that torchrun sets; of a process by itself where it did not start it.

    Raises:
        InputError: a variable that is missing or no number.
    """
    if _STARTED not in environ:
        return Launch()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    try:
        return Launch(*(int(environ[name]) for name in names))
    except (KeyError, ValueError) as error:
        raise InputError(
            f"{_STARTED} says that torchrun started this process, but {' '.join(names)} do not all "
            f"hold numbers ({error})",
            remedy=f"Start it by torchrun, or unset {_STARTED}",
        ) from error


def check_launch(config: RunConfig, launch: Launch, *, command: str) -> None:
    """Refuse a number of processes that is not `parallel.tensor`.

    Args:
        config: with `parallel.tensor`.
        launch: of this process.
        command: what was typed after `llmprof`, for the remedy.

    Raises:
        CapabilityError: this process is alone.
        InputError: the group has another size.
    """
    wanted, found = config.parallel.tensor, launch.world_size
    if wanted == found:
        return
    typed = f"Type: torchrun --nproc-per-node {wanted} -m llmprof {command}"
    if found == 1 and wanted > 1:
        raise CapabilityError(
            f"parallel.tensor={wanted} needs {wanted} processes, and this is one by itself",
            remedy=typed,
        )
    raise InputError(
        f"torchrun started {found} processes, but parallel.tensor is {wanted}",
        remedy=f"Set parallel.tensor={found}" + (f", or type: {typed[6:]}" if wanted > 1 else ""),
    )
