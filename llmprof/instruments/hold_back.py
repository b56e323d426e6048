"""Keeps a GPU busy for a while, so that the host enqueues a step before its first kernel starts."""

from collections.abc import Callable, Sequence
from typing import Final

from llmprof.schema.cost import Phase
from llmprof.schema.run import StepSample

_FASTEST_CLOCK_HZ: Final = 2.5e9
"""Above that of GPUs on sale, so that a device held back by cycles is held back long enough."""
_TIMES: Final = 2.0
_EXTRA_S: Final = 2e-3
"""Group marks of a step: some 600 events, each a few microseconds of the host's time."""
_LONGEST_S: Final = 0.05


def hold_back(device: str, seconds: float) -> Callable[[], None]:
    """A call that puts a kernel on the current stream of `cuda:N` which spins at least so long.

    Source: torch.cuda._sleep, which counts cycles of the multiprocessor's clock.
    """
    import torch

    cycles = int(seconds * _FASTEST_CLOCK_HZ)

    def spin() -> None:
        with torch.cuda.device(device):
            torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]

    return spin


def seconds_to_enqueue(samples: Sequence[StepSample]) -> float:
    """How long to hold a device back before each step of the grouped pass, from clean steps.

    Twice the host's shortest time of the slowest phase (a step that waited for room in the queue is
    longer), and what the marks of the groups take; no more than 50 ms.
    """
    shortest: dict[Phase, float] = {}
    for one in samples:
        shortest[one.shape.phase] = min(
            one.duration_s, shortest.get(one.shape.phase, one.duration_s)
        )
    return min(_TIMES * max(shortest.values(), default=0.0) + _EXTRA_S, _LONGEST_S)
