"""Who runs the steps of an engine, by `execution.mode`."""

from typing import Final, Protocol

import torch

from llmprof.engine.execution.graph_step import CONTEXT_STEP, GraphRecorder, context_bucket
from llmprof.engine.execution.program_step import MOST_ROWS, record_program
from llmprof.engine.execution.replay_runner import Record, ReplayRunner
from llmprof.engine.kernels.launch import runs_native
from llmprof.engine.kv_cache import KvCache
from llmprof.engine.model import Decoder
from llmprof.engine.probe import Probe
from llmprof.engine.rope import RotaryTable
from llmprof.engine.step_batch import StepBatch
from llmprof.errors import CapabilityError
from llmprof.schema.settings import ExecutionMode, KvLayout


class StepRunner(Protocol):
    @property
    def name(self) -> str:
        """How steps are started."""

    @property
    def row_buckets(self) -> tuple[int, ...]:
        """Rows that decode steps are padded to; empty where they run as they are."""

    def forward(
        self,
        decoder: Decoder,
        step: StepBatch,
        cache: KvCache,
        rotary: RotaryTable,
        probe: Probe,
    ) -> torch.Tensor:
        """As `Decoder.forward`; the logits are valid until the next step."""


class EagerRunner:
    """Op by op from Python."""

    name: Final = "op by op from Python"
    row_buckets: Final[tuple[int, ...]] = ()

    def forward(
        self,
        decoder: Decoder,
        step: StepBatch,
        cache: KvCache,
        rotary: RotaryTable,
        probe: Probe,
    ) -> torch.Tensor:
        return decoder.forward(step, cache, rotary, probe)


def make_runner(
    mode: ExecutionMode, *, device: str, layout: KvLayout, row_buckets: tuple[int, ...] = ()
) -> StepRunner:
    """For `cpu` or `cuda:N` and a cache of this layout.

    `row_buckets`: rows that CUDA graphs are padded to (`costs.row_buckets.buckets_of`).

    Raises:
        CapabilityError: the device cannot do it, or no step would have the shape of another.
    """
    if mode is ExecutionMode.EAGER:
        return EagerRunner()
    if layout is KvLayout.NONE:
        raise CapabilityError(
            f"execution.mode={mode.value} replays a decode step of one shape, and with "
            "kv_cache.layout=none every step is longer than the one before",
            remedy="Set execution.mode=eager or kv_cache.layout=contiguous",
        )
    on_cpu = torch.device(device).type == "cpu"
    match mode:
        case ExecutionMode.COMPILED:
            if not runs_native(device):
                raise _unavailable(mode, device, "it is made of kernels for CPUs", on_cpu)
            return replay_natively(record_program)
        case ExecutionMode.CUDA_GRAPH:
            if on_cpu:
                raise _unavailable(mode, device, "a CPU has no such graphs", on_cpu)
            return ReplayRunner(
                "decode steps captured as CUDA graphs, contexts rounded up to a multiple of "
                f"{CONTEXT_STEP}{', rows to a power of two' if row_buckets else ''}",
                GraphRecorder(),
                context_bucket,
                row_buckets=row_buckets,
            )


def replay_natively(record: Record) -> ReplayRunner:
    """Decode steps as native calls, recorded by `record_program`, on a CPU."""
    return ReplayRunner(
        f"decode steps of up to {MOST_ROWS} sequences replayed as native calls",
        record,
        lambda step: None,
        most_rows=MOST_ROWS,
    )


def _unavailable(mode: ExecutionMode, device: str, reason: str, on_cpu: bool) -> CapabilityError:
    other = ExecutionMode.COMPILED if on_cpu else ExecutionMode.CUDA_GRAPH
    if other is mode:
        return CapabilityError(
            f"execution.mode={mode.value} needs a CPU that converts fp16 itself",
            remedy="Set execution.mode=eager",
        )
    return CapabilityError(
        f"execution.mode={mode.value} is not available on {device}: {reason}",
        remedy=f"Set execution.mode={other.value}, which replays decode steps there, or eager",
    )
