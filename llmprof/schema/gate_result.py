"""The outcome of a performance gate: what renderers for people and for CI read, and nothing else."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from llmprof.schema.measurement import Caveat, Estimate
from llmprof.schema.metric import Metric
from llmprof.schema.record import Record
from llmprof.schema.run import Tool


class GateVerdict(StrEnum):
    """Of a metric, and of the whole gate: the worst of its metrics'."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    UNSTABLE = "unstable"
    """Too many rounds were spoiled by the machine: nothing is said about the code."""


class Look(StrEnum):
    """When a pair was measured."""

    FIRST = "first"
    SECOND = "second"
    """Only where the first look left a metric undecided; judged together with it."""
    CONFIRM = "confirm"
    """In new processes, only where a metric looked worse; judged alone."""


class Check(StrEnum):
    """How a metric was judged."""

    PAIRED = "paired"
    LAUNCHES = "launches"
    ONE_LAUNCH = "one_launch"
    """Saved runs, fewer than four a side, against the calibrated noise floor."""
    EXACT = "exact"
    PEAK = "peak"
    BUDGET = "budget"


class Pair(Record):
    """One turn of each arm, one right after the other."""

    look: Look
    launch: NonNegativeInt
    """Both arms were started anew for each."""
    candidate_first: bool
    baseline: dict[str, PositiveFloat]
    """Metric -> median over the rounds of the turn."""
    candidate: dict[str, PositiveFloat]
    rejected: str | None = None
    """What spoiled the pair; kept, and left out of every figure."""


class Judgement(Record):
    """One metric against its tolerance or budget."""

    metric: Metric
    check: Check
    verdict: GateVerdict
    improved: bool = False
    """Better by more than the tolerance, and shown."""
    tolerance: NonNegativeFloat | None
    """Relative; null for a budget."""
    at_most: float | None = None
    """A budget's limits, in the metric's unit."""
    at_least: float | None = None
    baseline: float | None
    """Median over pairs or launches; null for a budget."""
    candidate: float | None
    ratio: Estimate | None = None
    """Candidate over baseline, with the interval of the test that judged it."""
    p_value: float | None = None
    """One-sided, of "worse"."""
    minimum_detectable: float | None = None
    """Relative difference that these pairs show with a power of 80 %."""
    pairs_needed: PositiveInt | None = None
    """To show a difference of the tolerance, where the verdict is inconclusive and these are fewer."""
    reason: str
    """What the verdict rests on, in plain words."""


class GateArm(Record):
    label: str
    """`candidate.yaml`, `candidate.yaml at origin/main`, or a run's id."""
    model: str
    versions: dict[str, str]
    fingerprint: str
    """Of its environment."""
    output_sha256: str | None
    compute_dtype: str
    weight_bytes: NonNegativeInt


class SettingsLocation(Record):
    """The line that sets the tolerance: where annotations point."""

    file: str
    line: PositiveInt


class GateResult(Record):
    schema_: Literal["llmprof.gate/1"] = Field(default="llmprof.gate/1", alias="schema")
    command: Literal["run", "check", "calibrate"]
    created: datetime
    tool: Tool
    title: str
    """Model and shape of the work."""
    device: str
    baseline: GateArm | None
    """Null where only budgets were checked."""
    candidate: GateArm
    verdict: GateVerdict
    exit_code: Literal[0, 1, 3, 5]
    judgements: tuple[Judgement, ...]
    pairs: tuple[Pair, ...] = ()
    num_launches: NonNegativeInt = 0
    elapsed_s: NonNegativeFloat
    location: SettingsLocation | None = None
    caveats: tuple[Caveat, ...] = ()
