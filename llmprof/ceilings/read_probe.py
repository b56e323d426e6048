"""Read through a pool in calls of some milliseconds."""

from collections.abc import Sequence

import torch

from llmprof.ceilings.pool import Stream
from llmprof.ceilings.read_kernels import ReadKernel
from llmprof.ceilings.timing import Stopwatch

_CALL_S = 0.010
_LEAST_CALL_BYTES = 64 << 20
"""However slow the first calls were: a machine that is busy must not be timed by its launches."""
_LINE_BYTES = 256
_FIRST_BYTES = 64 << 20


class ReadProbe:
    """One kernel on the next bytes of a stream; rivals share the stream, so none reads warm bytes."""

    __slots__ = ("_call_bytes", "_stream", "kernel")

    def __init__(self, kernel: ReadKernel, stream: Stream) -> None:
        self.kernel = kernel
        self._stream = stream
        self._call_bytes = _LEAST_CALL_BYTES

    def expect(self, bytes_per_s: float) -> None:
        """Make calls at least 10 ms long at this rate; they never become shorter again."""
        self._call_bytes = max(self._call_bytes, int(bytes_per_s * _CALL_S))

    @property
    def bytes_per_call(self) -> int:
        return self._numel * self._stream.pool.itemsize * self._passes

    @property
    def _numel(self) -> int:
        pool = self._stream.pool
        return min(self._call_bytes, pool.nbytes) // _LINE_BYTES * _LINE_BYTES // pool.itemsize

    @property
    def _passes(self) -> int:
        """More than one where the pool is smaller than a call."""
        return max(1, round(self._call_bytes / self._stream.pool.nbytes))

    def __call__(self) -> None:
        data = self._stream.take(self._numel)
        self.kernel.read(data.view(torch.float32), self._passes)


def read_probes(
    kernels: Sequence[ReadKernel], stream: Stream, stopwatch: Stopwatch
) -> dict[str, ReadProbe]:
    """Probes by kernel name whose calls read the same number of bytes.

    A pool that is passed over several times per call is left to the kernels that do so in one
    launch, where there are any. Each kernel runs once before anything is timed: that compiles it.
    """
    if stream.pool.nbytes < _LEAST_CALL_BYTES:
        kernels = [kernel for kernel in kernels if kernel.in_one_launch] or kernels
    probes = {kernel.name: ReadProbe(kernel, stream) for kernel in kernels}
    start = stream.pool[: _FIRST_BYTES // stream.pool.itemsize].view(torch.float32)
    fastest = max(_second_rate(kernel, start, stopwatch) for kernel in kernels)
    for probe in probes.values():
        probe.expect(fastest)
    return probes


def _second_rate(kernel: ReadKernel, data: torch.Tensor, stopwatch: Stopwatch) -> float:
    kernel.read(data, 1)
    return stopwatch.rate(lambda: kernel.read(data, 1), data.nbytes)
