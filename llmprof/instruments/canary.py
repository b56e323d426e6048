"""A loop whose speed depends on the core's clock alone: the witness of throttling."""

import time
from collections.abc import Callable

_CHUNKS = 7
_CHUNK_NS = 1_000_000
_FIRST_ADDITIONS = 100_000


class Canary:
    """Chain of dependent additions, timed in CPU time: memory and neighbours hardly touch it.

    The additions are IEEE doubles in strict order, which no compiler may fold, reorder or vectorise.
    One takes the adder's latency (2 to 4 cycles), so the figure is a fraction of the clock and is
    only comparable with itself on the same machine. The best of several chunks counts: interrupts
    and a hypervisor that takes time away slow some of them, a lower clock slows all.
    """

    __slots__ = ("_additions", "_chain", "_cpu_ns")

    def __init__(self, cpu_ns: Callable[[], int] = time.thread_time_ns) -> None:
        """Compile (about half a second, once per process) and size a chunk to about 1 ms."""
        import numba

        self._cpu_ns = cpu_ns
        self._chain: Callable[[int, float], float] = numba.njit(nogil=True)(_dependent_additions)
        self._chain(1, 1.0)
        taken_ns = max(1, min(self._chunk_ns(_FIRST_ADDITIONS) for _ in range(_CHUNKS)))
        self._additions = max(1, _FIRST_ADDITIONS * _CHUNK_NS // taken_ns)

    def read_hz(self) -> float | None:
        """Additions per CPU-second, best of 7 chunks of 1 ms; null where CPU time stood still."""
        taken_ns = min(self._chunk_ns(self._additions) for _ in range(_CHUNKS))
        return self._additions / taken_ns * 1e9 if taken_ns > 0 else None

    def _chunk_ns(self, additions: int) -> int:
        start_ns = self._cpu_ns()
        self._chain(additions, 1.0)
        return self._cpu_ns() - start_ns


def _dependent_additions(additions: int, step: float) -> float:
    total = 0.0
    for _ in range(additions):
        total += step
    return total
