"""Two runs side by side: the document that renderers of a comparison read, and nothing else."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from llmprof.schema.confirmation import Confirmation, OutputComparison
from llmprof.schema.cost import Phase
from llmprof.schema.ledger import Part
from llmprof.schema.measurement import Caveat, Estimate
from llmprof.schema.metric import Metric
from llmprof.schema.record import Record
from llmprof.schema.report import Roof, RooflinePoint


class Change(StrEnum):
    """What is shown about a metric."""

    BETTER = "better"
    WORSE = "worse"
    EQUAL = "equal"
    """An exact count that did not change."""
    NOT_SHOWN = "not_shown"
    """No difference is shown: it may be none, or too small for these runs to tell."""


class Basis(StrEnum):
    """What a statement about a difference rests on."""

    EXACT = "exact"
    PAIRED = "paired"
    """Rounds of both arms in turn; exact signed-rank test."""
    LAUNCHES = "launches"
    """Medians of at least four launches a side; exact Mann-Whitney test."""
    ONE_LAUNCH = "one_launch"
    """Fewer: two processes differ by more than their rounds tell, and nothing is claimed."""


class MetricChange(Record):
    """One metric on both sides; a side is null where it has no such thing."""

    metric: Metric
    baseline: Estimate | None
    candidate: Estimate | None
    ratio: Estimate | None
    """Candidate over baseline. Of a `one_launch` basis the interval holds what the rounds of these
    two processes leave open, and not how far two processes of the same code differ."""
    basis: Basis
    p_value: float | None = None
    """Two-sided, of this metric alone; null where nothing is tested."""
    p_adjusted: float | None = None
    """The same among all timed metrics of the comparison, after Holm: what a difference between saved
    runs is shown by. Null where each metric is judged by itself."""
    change: Change
    noise_floor: float | None = None
    """Relative difference below which two launches of the same code lie, as calibrated here."""


class PartChange(Record):
    """A part of the ledger on both sides."""

    phase: Phase
    part: Part
    baseline_s: Estimate | None
    candidate_s: Estimate | None
    difference_s: Estimate
    """Candidate minus baseline; the interval is the sum of both, so it is wide rather than narrow.
    A part that one side does not have counts as zero there."""


class SettingChange(Record):
    key: str
    baseline: str
    candidate: str


def num_adjusted(metrics: Sequence[MetricChange]) -> int:
    """How many metrics were looked at together."""
    return sum(one.p_adjusted is not None for one in metrics)


class ComparedSide(Record):
    """What one side ran. Of several launches the first stands for all, but for the metrics."""

    label: str
    run_ids: tuple[str, ...]
    created: datetime
    model: str
    device: str
    threads: PositiveInt
    weights: str
    """As they lie in memory: `bf16 257 MiB` is told by dtype and bytes."""
    weight_bytes: int
    output_sha256: str | None
    roof: Roof | None
    points: tuple[RooflinePoint, ...]


class Arrangement(StrEnum):
    """Where the two arms of a live comparison lived."""

    ONE_PROCESS = "one_process"
    """Both loaded; their rounds take turns, A B B A."""
    OWN_PROCESSES = "own_processes"
    """Memory does not hold both: each pair loads one after the other, A B B A."""


class LiveComparison(Record):
    """How both arms were measured in turn, and what was predicted before that."""

    arrangement: Arrangement
    num_pairs: PositiveInt
    """Measured."""
    num_disturbed: NonNegativeInt
    """Pairs of which a round was spoiled by other processes or a lower clock."""
    num_used: PositiveInt
    """All but the disturbed ones; all of them where too few others remain."""
    outputs: OutputComparison
    confirmation: Confirmation | None
    not_predicted: str | None = None
    """Why there is no prediction to confirm."""


class Comparison(Record):
    schema_: Literal["llmprof.comparison/1"] = Field(default="llmprof.comparison/1", alias="schema")
    baseline: ComparedSide
    candidate: ComparedSide
    not_comparable: tuple[str, ...]
    """Why the two are not alike, where that was forced, or measured so on purpose; empty for a fair
    comparison."""
    settings: tuple[SettingChange, ...]
    """What was set differently."""
    same_outputs: bool | None
    """Whether both gave the same tokens; null where a side has no hash of them."""
    metrics: tuple[MetricChange, ...]
    parts: tuple[PartChange, ...]
    caveats: tuple[Caveat, ...]
    headline: str
    launches_needed: PositiveInt | None = None
    """A side, to show a difference in one of so many metrics; null where there are as many, and where
    rounds took turns."""
    live: LiveComparison | None = None
    """Null for saved runs."""
