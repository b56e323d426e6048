"""NVTX ranges around steps and op groups: how profilers of NVIDIA tell whose kernel it is.

Source: NVTX push/pop ranges (default domain, per thread), through torch.cuda.nvtx.
"""

from typing import Protocol

from llmprof.errors import CapabilityError
from llmprof.instruments.injection import Observer, PassedOn
from llmprof.schema.cost import OpGroup, StepShape

PREFIX = "llmprof."


class Ranges(Protocol):
    """The module torch.cuda.nvtx, as far as it is used."""

    def range_push(self, msg: str) -> object: ...
    def range_pop(self) -> object: ...


class NvtxRanges(PassedOn):
    """Pushes `llmprof.prefill`, `llmprof.decode` or `llmprof.mixed` at each step, inside of it the group.

    Kernels belong to the range in which the host launched them. It wants groups, so a step that is
    otherwise one CUDA graph goes kernel by kernel, the same kernels.
    """

    __slots__ = ("_ranges",)

    def __init__(self, probe: Observer, ranges: Ranges) -> None:
        super().__init__(probe)
        self.wants_groups = True
        self._ranges = ranges

    def step_begin(self, shape: StepShape) -> None:
        super().step_begin(shape)
        self._ranges.range_push(f"{PREFIX}{shape.phase.value}")

    def step_end(self) -> None:
        self._ranges.range_pop()
        super().step_end()

    def group_begin(self, group: OpGroup) -> None:
        super().group_begin(group)
        self._ranges.range_push(group.value)

    def group_end(self) -> None:
        self._ranges.range_pop()
        super().group_end()


def open_ranges(device: str) -> Ranges:
    """torch.cuda.nvtx, tried out.

    Raises:
        CapabilityError: `device` is no GPU, or this torch was built without NVTX.
    """
    if not device.startswith("cuda"):
        raise CapabilityError(
            f"NVTX ranges mark kernels of a GPU, and the run is on {device}",
            remedy="Set device=cuda, or leave out --nvtx (nvtx in measure.passes)",
        )
    from torch.cuda import nvtx

    try:
        nvtx.range_push(f"{PREFIX}check")  # type: ignore[no-untyped-call]
        nvtx.range_pop()  # type: ignore[no-untyped-call]
    except (RuntimeError, AttributeError) as error:
        raise CapabilityError(
            f"this torch has no NVTX ranges ({str(error).partition(chr(10))[0]})",
            remedy="Install a CUDA build of torch, or leave out --nvtx",
        ) from error
    return nvtx
