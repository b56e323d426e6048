"""What hardware counters say beside what was counted: what `llmprof ncu` prints."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from llmprof.schema.cost import Phase
from llmprof.schema.record import Record


class NcuPhase(Record):
    """One step of a phase: counters of its kernels, and the counts of the run's median step."""

    phase: Phase
    steps: PositiveInt
    """That were profiled: counters are divided by it."""
    kernels: PositiveInt
    """Of one step."""
    gpu_time_s: NonNegativeFloat | None
    """Kernel by kernel, under the profiler: no time to claim a rate from."""
    dram_bytes: NonNegativeFloat | None
    """Read and written, by `dram__bytes_read.sum` and `dram__bytes_write.sum`."""
    counted_bytes: NonNegativeFloat | None
    """That count toward the roof: a lower bound of the traffic."""
    counted_bytes_with_activations: NonNegativeFloat | None
    amplification: PositiveFloat | None
    """Measured over counted bytes: above 1 for copies, scores and spilled activations, below 1
    where a cache served some."""
    hardware_flops: NonNegativeFloat | None
    """Operations that tensor cores and floating-point units did, padding included."""
    analytic_flops: NonNegativeFloat | None
    """That the model needs. Another quantity: the two are not to be exchanged."""
    missing: dict[str, str] = Field(default_factory=dict)
    """Fields that are null, with the reason."""


class NcuCommand(Record):
    """How to profile one phase, and what to compare then. Both are words for a shell."""

    phase: Phase
    steps: PositiveInt
    """Of the phase in one round: all of them are profiled."""
    profile: str
    compare: str


class NcuCommands(Record):
    """What `llmprof ncu` prints without a file."""

    schema_: Literal["llmprof.ncu-commands/1"] = Field(
        default="llmprof.ncu-commands/1", alias="schema"
    )
    run_id: str
    commands: tuple[NcuCommand, ...]


class NcuComparison(Record):
    schema_: Literal["llmprof.ncu/1"] = Field(default="llmprof.ncu/1", alias="schema")
    run_id: str
    file: str
    """Its name, without the folder."""
    phases: tuple[NcuPhase, ...]
