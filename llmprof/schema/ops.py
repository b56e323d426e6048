"""The ops of one step, each against its roof: where the time goes below the level of op groups."""

from pydantic import NonNegativeFloat, PositiveInt

from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.ledger import Side
from llmprof.schema.measurement import Estimate
from llmprof.schema.record import Record
from llmprof.schema.trace import TraceClock


class OpEntry(Record):
    """One kind of op or kernel in one group, all its calls in a step together."""

    op: str
    """Several that share one roof stand together, as `a + b`: splitting it would be a guess."""
    group: OpGroup
    calls: NonNegativeFloat
    """Per step; of a median over steps, so it may be a half."""
    time_s: Estimate
    """Tracing pass, what recording adds taken out."""
    fixed_cost_s: NonNegativeFloat
    memory_s: NonNegativeFloat
    compute_s: NonNegativeFloat
    roof_s: NonNegativeFloat
    """fixed cost + the longer of memory and compute, per op: alone the fixed cost for ops that no
    cost asks for."""
    loss_s: Estimate
    """time - roof: what an op on its roof would give back; negative by noise or a wrong count."""
    side: Side | None
    """The longer link; null for work in cache, which has none worth the name."""
    flops: NonNegativeFloat
    roof_bytes: NonNegativeFloat
    """What counts toward the roof, as in `GroupEntry`."""
    achieved_flops_per_s: float | None
    """Null for an op without matrix work, and where a matrix operator has no formula."""
    achieved_bytes_per_s: float | None
    """Null for an op whose bytes a cache holds."""


class PhaseOps(Record):
    """The ops of the middle step of a phase, the largest loss first."""

    phase: Phase
    clock: TraceClock
    num_steps: PositiveInt
    step_s: float
    """Of the clean pass: what the ops' times are shares of."""
    traced_step_s: float
    """Of the tracing pass, which slows down what lies between ops."""
    busy_s: Estimate
    """Sum of the ops' times."""
    between_s: float
    """Clean step - busy: interpreter, dispatch and waits between ops; negative where ops took longer
    in the tracing pass than in the clean one."""
    host_wait_s: float | None
    """Of the gaps between kernels of the traced step those in which the device had nothing to do,
    since the host launched the next kernel later than the last one ended; null on a CPU."""
    idle_s: float | None = None
    """All gaps between kernels of the traced step; null on a CPU."""
    ops_per_step: float
    ops_per_token: float
    """Over the new tokens of all sequences."""
    mean_op_s: float
    unmapped_fraction: float
    """Of the busy time, in ops outside of every group."""
    entries: tuple[OpEntry, ...]
