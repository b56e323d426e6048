"""The clock of a GPU beside what was measured at it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from llmprof.instruments.nvml import NvmlUnavailable, open_nvml
from llmprof.schema.environment import Environment

ReadClock = Callable[[], float | None]
"""Hz of the multiprocessors now; None where nothing tells."""


def no_clock() -> float | None:
    return None


@contextmanager
def device_clock(environment: Environment) -> Iterator[ReadClock]:
    """Through NVML, while the block runs; of a CPU, and without NVML, there is none."""
    session = open_nvml(environment.gpu.uuid) if environment.gpu is not None else None
    if session is None or isinstance(session, NvmlUnavailable):
        yield no_clock
        return
    try:
        yield session.sm_clock_hz
    finally:
        session.close()
