"""Weights that pass through the caches: what starts an op finds its own code and data gone cold.

An op that starts in a real step finds the caches full of the weights that were just multiplied. Timed
without them, starting the 300 to 400 ops of a decode step took 37 to 55 % of what it takes in the step;
with as many bytes streamed past before each product, 79 to 83 % (2 cores, two models).
"""

import copy
import functools
from collections.abc import Mapping

import torch

from llmprof.ceilings.pool import Stream, random_pool
from llmprof.ceilings.read_kernels import read_kernels
from llmprof.ceilings.streaming_read import StreamingRead
from llmprof.engine.kernels.vector_ir import LANES
from llmprof.instruments.clock import NS_PER_S, HostClock
from llmprof.instruments.injection import Observer, PassedOn
from llmprof.schema.cost import PROJECTIONS, OpGroup, StepCost

PASSING = OpGroup.OTHER
"""The group in which the bytes are read: no group of a model's step is called that."""


class WeightStream:
    """As many bytes as a model's weights, read on and on by the fastest kernel of the device."""

    def __init__(self, size_bytes: int, device: str) -> None:
        """Takes the memory: `size_bytes`, or a quarter of what is free where that is less."""
        self._kernel = read_kernels(device)[0]
        self._stream = Stream(random_pool(size_bytes, device, torch.float32))

    def launch(self, size_bytes: int) -> None:
        """As `read`, by a launch that a recording on a CPU repeats."""
        numel = size_bytes // self._stream.pool.itemsize
        if numel:
            _recorded_read().launch(self._stream.take(numel), _sums(torch.get_num_threads()))

    def first(self, size_bytes: int) -> "WeightStream":
        """So much of it, in the same memory: what comes round again sooner stays in larger caches."""
        part = copy.copy(self)
        part._stream = Stream(self._stream.pool[: max(1, size_bytes // torch.float32.itemsize)])
        return part

    def read(self, size_bytes: int) -> None:
        """The next `size_bytes`, at most all of them."""
        numel = size_bytes // self._stream.pool.itemsize
        if numel:
            self._kernel.read(self._stream.take(numel), 1)


class PassingWeights(PassedOn):
    """Reads the weights of each product before its group begins, in a group of their own."""

    __slots__ = ("_clock", "_sizes", "_stream", "taken_s")

    def __init__(
        self, probe: Observer, stream: WeightStream, size_bytes: Mapping[OpGroup, int]
    ) -> None:
        """`size_bytes` of each time that the step enters a group."""
        super().__init__(probe)
        self.wants_groups = True
        self.taken_s = 0.0
        """On the host's clock, all reads together."""
        self._clock = HostClock()
        self._stream = stream
        self._sizes = dict(size_bytes)

    def group_begin(self, group: OpGroup) -> None:
        size_bytes = self._sizes.get(group)
        if size_bytes:
            begin_ns = self._clock.now_ns()
            self._probe.group_begin(PASSING)
            self._stream.read(size_bytes)
            self._probe.group_end()
            self.taken_s += (self._clock.now_ns() - begin_ns) / NS_PER_S
        self._probe.group_begin(group)


class PassingInReplays(PassedOn):
    """Of a step that is being recorded: has the weights read in every replay, without Python."""

    __slots__ = ("_sizes", "_stream")

    def __init__(
        self, probe: Observer, stream: WeightStream, size_bytes: Mapping[OpGroup, int]
    ) -> None:
        """As `PassingWeights`; `probe` records."""
        super().__init__(probe)
        self._stream = stream
        self._sizes = dict(size_bytes)

    def group_begin(self, group: OpGroup) -> None:
        size_bytes = self._sizes.get(group)
        if size_bytes:
            self._probe.group_begin(PASSING)
            self._stream.launch(size_bytes)
            self._probe.group_end()
        self._probe.group_begin(group)


def weights_per_entry(cost: StepCost, layers: int) -> dict[OpGroup, int]:
    """Stored bytes that each product group reads each time it is entered: per layer, or once a step."""
    return {
        group: int(cost.of_groups(group).traffic.weights / _entries(group, layers))
        for group in PROJECTIONS
        if cost.of_groups(group).ops
    }


@functools.cache
def _recorded_read() -> StreamingRead:
    return StreamingRead(4, prefetch_bytes=1024)


@functools.cache
def _sums(threads: int) -> torch.Tensor:
    """Where a recorded read leaves what nobody looks at."""
    return torch.empty(threads, LANES, dtype=torch.int32)


def _entries(group: OpGroup, layers: int) -> int:
    return 1 if group is OpGroup.LM_HEAD else layers
