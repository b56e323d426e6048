"""Where time comes from: the host's clock, and timestamps on a device's own stream."""

import time
from typing import Protocol

NS_PER_S = 1_000_000_000


class Clock(Protocol):
    """A monotonic clock of the host."""

    def now_ns(self) -> int: ...


class HostClock:
    """`time.perf_counter_ns` itself, so that a reading costs one C call."""

    __slots__ = ()
    now_ns = staticmethod(time.perf_counter_ns)


class Timer(Protocol):
    """Marks moments cheaply now and tells the time between them later.

    A mark is an integer that only its timer understands. `elapsed_s` is valid after `synchronize`.
    """

    def mark(self) -> int: ...
    def synchronize(self) -> None: ...
    def elapsed_s(self, begin: int, end: int) -> float: ...
    def reset(self) -> None: ...


class HostTimer:
    """Marks moments with the host's clock: right where the host does the work itself."""

    __slots__ = ("mark",)

    def __init__(self, clock: Clock) -> None:
        self.mark = clock.now_ns

    def synchronize(self) -> None:
        """Nothing is pending: a mark is its own time."""

    def elapsed_s(self, begin: int, end: int) -> float:
        return (end - begin) / NS_PER_S

    def reset(self) -> None:
        """Marks are not stored."""


class CudaEventTimer:
    """Marks moments on a CUDA stream with timing events, taken from a pool that is reused.

    An event is a timestamp that the device writes when it reaches it (resolution about 0.5 us), so
    the time between two marks includes whatever the device waited for in between. Marks go to the
    stream that was current at the last `reset`; inside a graph capture none may be taken, so mark
    around the replay. Source: CUDA Runtime API, cudaEventRecord and cudaEventElapsedTime.
    """

    __slots__ = ("_cuda", "_device", "_events", "_next", "_stream")

    def __init__(self, device: str, *, capacity: int = 4096) -> None:
        import torch

        self._cuda = torch.cuda
        self._device = torch.device(device)
        self._events: list[torch.cuda.Event] = []
        self._next = 0
        self._stream = torch.cuda.current_stream(self._device)
        self._grow(capacity)

    def mark(self) -> int:
        """Index of the event that was put on the stream."""
        index = self._next
        if index == len(self._events):
            self._grow(index)
        self._events[index].record(self._stream)
        self._next = index + 1
        return index

    def synchronize(self) -> None:
        """Wait until the device has passed every mark."""
        self._cuda.synchronize(self._device)

    def elapsed_s(self, begin: int, end: int) -> float:
        elapsed_ms: float = self._events[begin].elapsed_time(self._events[end])
        return elapsed_ms / 1e3

    def reset(self) -> None:
        """Forget every mark and follow the stream that is current now."""
        self._next = 0
        self._stream = self._cuda.current_stream(self._device)

    def _grow(self, count: int) -> None:
        for _ in range(count):
            event = self._cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(self._stream)  # torch creates the event at its first record: do that here
            self._events.append(event)


def device_timer(device: str) -> Timer | None:
    """The device's own clock: events for `cuda:N`, None for `cpu`, whose work is the host's."""
    return None if device == "cpu" else CudaEventTimer(device)
