"""Who runs the steps of an engine, by `execution.mode`."""

from typing import Final, Protocol

import torch

from llmprof.engine.execution.compilations import Compilations
from llmprof.engine.execution.compiled_step import StepCompiler
from llmprof.engine.execution.graph_step import CONTEXT_STEP, GraphRecorder, context_bucket
from llmprof.engine.execution.program_step import MOST_ROWS, record_program
from llmprof.engine.execution.replay_runner import Record, ReplayRunner
from llmprof.engine.kernels.launch import runs_native
from llmprof.engine.kernels.triton.available import triton_trouble
from llmprof.engine.kv_cache import KvCache
from llmprof.engine.model import Decoder
from llmprof.engine.probe import Probe
from llmprof.engine.rope import RotaryTable
from llmprof.engine.step_batch import StepBatch
from llmprof.errors import CapabilityError
from llmprof.schema.settings import AttentionKind, ExecutionMode, KvLayout
from llmprof.store.progress import Progress


class StepRunner(Protocol):
    @property
    def name(self) -> str:
        """How steps are started."""

    @property
    def row_buckets(self) -> tuple[int, ...]:
        """Rows that decode steps are padded to; empty where they run as they are."""

    @property
    def compilations(self) -> Compilations | None:
        """What torch.compile made of decode steps; None where it is not asked."""

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
    compilations: Final = None

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
    mode: ExecutionMode,
    *,
    device: str,
    layout: KvLayout,
    row_buckets: tuple[int, ...] = (),
    attention: AttentionKind = AttentionKind.FLASH,
    progress: Progress | None = None,
) -> StepRunner:
    """For a device and a cache.

    Args:
        mode: of the run.
        device: `cpu` or `cuda:N`.
        layout: of its cache.
        row_buckets: rows that steps are padded to (`costs.row_buckets.buckets_of`).
        attention: that of compiled steps on a GPU.
        progress: told when torch.compile starts, and what it took.

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
            if not on_cpu:
                return _compiling(device, row_buckets, attention, progress)
            if not runs_native(device):
                raise CapabilityError(
                    f"execution.mode={mode.value} needs a CPU that converts fp16 itself",
                    remedy="Set execution.mode=eager",
                )
            return replay_natively(record_program)
        case ExecutionMode.CUDA_GRAPH:
            if on_cpu:
                raise CapabilityError(
                    f"execution.mode={mode.value} is not available on {device}: a CPU has no such graphs",
                    remedy="Set execution.mode=compiled, which replays decode steps there, or eager",
                )
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


def _compiling(
    device: str,
    row_buckets: tuple[int, ...],
    attention: AttentionKind,
    progress: Progress | None,
) -> ReplayRunner:
    """By torch.compile, one shape of step at a time; on a GPU.

    A kernel that reads through block tables serves every context. Without one the number of tokens
    is a part of what is compiled, and is rounded up as for graphs.

    Raises:
        CapabilityError: torch.compile could not build a kernel there.
    """
    trouble = triton_trouble(device)
    if trouble is not None:
        raise CapabilityError(
            f"execution.mode=compiled is not available on {device}: {trouble}, and torch.compile "
            "makes its kernels with it",
            remedy="Install triton and a C compiler (gcc), or set execution.mode=cuda_graph or eager",
        )
    compilations = Compilations()
    standard = attention is AttentionKind.STANDARD
    contexts = f", contexts rounded up to a multiple of {CONTEXT_STEP}" if standard else ""
    return ReplayRunner(
        f"decode steps compiled whole by torch.compile ({compilations.backend}): it fuses norms, "
        f"rotations, gates and additions, and starts its kernels one by one{contexts}"
        f"{', rows to a power of two' if row_buckets else ''}",
        StepCompiler(compilations, progress),
        context_bucket if standard else lambda step: None,
        row_buckets=row_buckets,
        whole_tables=True,
        compilations=compilations,
    )
