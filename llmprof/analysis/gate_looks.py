"""The rule of the gate over paired rounds: two looks, and a confirmation before any FAIL.

Each timed metric is judged by the log ratios of its pairs, oriented so that above zero is worse:

- suspect: worse beyond chance (Holm over the metrics), and by the tolerance or more;
- pass: the upper bound lies below the tolerance;
- otherwise undecided: a second look with as many pairs again decides together with the first.

The chance of 2.5 % to suspect an unchanged metric is split over the two looks. A suspect is measured
again in new processes and fails only if it is suspect again, alone, and every launch of both
measurements agrees in sign: what two processes of the same code differ by does not recur.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil, log1p, log2
from typing import Final

import numpy as np
from numpy.typing import NDArray

from llmprof.analysis.paired import hodges_lehmann, holm, log_ratios, p_value_above_zero
from llmprof.schema.gate_result import GateVerdict, Look, Pair
from llmprof.schema.metric import Better, Metric

ALPHA_SUSPECT: Final = 0.0125
"""One-sided, per look."""
ALPHA_PASS: Final = 0.025
ALPHA_CONFIRM: Final = 0.025
MIN_PAIRS: Final = 7
"""Fewer have no bound at ALPHA_SUSPECT."""


def least_pairs(num_metrics: int) -> int:
    """Of a look, so that a regression in all of so many metrics can be confirmed: p is 2^-n at least."""
    return max(MIN_PAIRS, ceil(log2(num_metrics / ALPHA_CONFIRM)))


@dataclass(frozen=True, slots=True)
class TimedRule:
    metric: Metric
    tolerance: float


@dataclass(frozen=True, slots=True)
class TimedVerdict:
    verdict: GateVerdict
    reason: str
    improved: bool = False


class _Opinion(Enum):
    SUSPECT = "suspect"
    PASS = "pass"
    IMPROVED = "improved"
    UNDECIDED = "undecided"


Measure = Callable[[Look], Sequence[Pair]]
"""Takes the pairs of one look, spoiled ones included, until enough are valid or it gives up."""


@dataclass(slots=True)
class _Looks:
    rules: Sequence[TimedRule]
    num_pairs: int
    measure: Measure
    pairs: list[Pair] = field(default_factory=list)
    opinions: dict[str, _Opinion] = field(default_factory=dict)

    def take(self, look: Look) -> bool:
        """Measure one look; False where the machine spoiled too much of it."""
        taken = self.measure(look)
        self.pairs += taken
        return sum(pair.rejected is None for pair in taken) >= self.num_pairs

    def valid(self, *looks: Look) -> list[Pair]:
        return [pair for pair in self.pairs if pair.rejected is None and pair.look in looks]

    def judge(self, *looks: Look, rules: Sequence[TimedRule], alpha: float) -> None:
        self.opinions |= _opinions(rules, self.valid(*looks), alpha)

    def with_opinion(self, opinion: _Opinion) -> list[TimedRule]:
        return [rule for rule in self.rules if self.opinions[rule.metric.name] is opinion]


def judge_pairs(
    rules: Sequence[TimedRule], num_pairs: int, measure: Measure
) -> tuple[dict[str, TimedVerdict], tuple[Pair, ...]]:
    """Measure as many looks as it takes and return each metric's verdict, and all pairs.

    Args:
        rules: the timed metrics; every pair must have a value of each on both sides.
        num_pairs: valid pairs that make a look.
        measure: takes them.
    """
    looks = _Looks(rules, num_pairs, measure)
    if not looks.take(Look.FIRST):
        return _all_unstable(rules), tuple(looks.pairs)
    looks.judge(Look.FIRST, rules=rules, alpha=ALPHA_SUSPECT)
    undecided = looks.with_opinion(_Opinion.UNDECIDED)
    if undecided:
        if not looks.take(Look.SECOND):
            return _all_unstable(rules), tuple(looks.pairs)
        first = dict(looks.opinions)
        looks.judge(Look.FIRST, Look.SECOND, rules=rules, alpha=ALPHA_SUSPECT)
        looks.opinions |= {
            name: opinion for name, opinion in first.items() if opinion is not _Opinion.UNDECIDED
        }
    verdicts = {rule.metric.name: _verdict(rule, looks) for rule in rules}
    suspects = looks.with_opinion(_Opinion.SUSPECT)
    if suspects:
        verdicts |= _confirmed(suspects, looks)
    return verdicts, tuple(looks.pairs)


def oriented_differences(metric: Metric, pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """Log ratios of the pairs; above zero the candidate is worse."""
    name = metric.name
    ratios = log_ratios(
        [pair.baseline[name] for pair in pairs], [pair.candidate[name] for pair in pairs]
    )
    return ratios if metric.better is Better.LOWER else -ratios


def _opinions(
    rules: Sequence[TimedRule], pairs: Sequence[Pair], alpha: float
) -> dict[str, _Opinion]:
    differences = [oriented_differences(rule.metric, pairs) for rule in rules]
    worse = holm([p_value_above_zero(one) for one in differences], alpha)
    return {
        rule.metric.name: _opinion(one, log1p(rule.tolerance), worse=is_worse)
        for rule, one, is_worse in zip(rules, differences, worse, strict=True)
    }


def _opinion(differences: NDArray[np.float64], limit: float, *, worse: bool) -> _Opinion:
    strict, usual = (hodges_lehmann(differences, level) for level in (ALPHA_SUSPECT, ALPHA_PASS))
    if worse and strict.estimate >= limit:
        return _Opinion.SUSPECT
    if strict.upper < 0 and strict.estimate <= -limit:
        return _Opinion.IMPROVED
    return _Opinion.PASS if usual.upper < limit else _Opinion.UNDECIDED


def _verdict(rule: TimedRule, looks: _Looks) -> TimedVerdict:
    opinion = looks.opinions[rule.metric.name]
    if opinion is _Opinion.PASS:
        return TimedVerdict(GateVerdict.PASS, "its upper bound is below the tolerance")
    if opinion is _Opinion.IMPROVED:
        return TimedVerdict(GateVerdict.PASS, "better by more than the tolerance", improved=True)
    return TimedVerdict(
        GateVerdict.INCONCLUSIVE, "neither a regression nor its absence is shown by these pairs"
    )


def _confirmed(suspects: Sequence[TimedRule], looks: _Looks) -> dict[str, TimedVerdict]:
    if not looks.take(Look.CONFIRM):
        reason = "it looked worse, and the machine was too unstable to confirm that"
        return {rule.metric.name: TimedVerdict(GateVerdict.UNSTABLE, reason) for rule in suspects}
    again = _opinions(suspects, looks.valid(Look.CONFIRM), ALPHA_CONFIRM)
    every = looks.valid(*Look)
    return {
        rule.metric.name: _confirmation(rule, again[rule.metric.name], every) for rule in suspects
    }


def _confirmation(rule: TimedRule, again: _Opinion, pairs: Sequence[Pair]) -> TimedVerdict:
    if again is not _Opinion.SUSPECT:
        return TimedVerdict(GateVerdict.INCONCLUSIVE, "it looked worse, not so in new processes")
    medians = _launch_medians(rule.metric, pairs)
    agreeing = sum(median > 0 for median in medians.values())
    if agreeing < len(medians):
        return TimedVerdict(
            GateVerdict.INCONCLUSIVE,
            f"worse in {agreeing} of {len(medians)} launches only: launches of this code differ",
        )
    return TimedVerdict(
        GateVerdict.FAIL, f"confirmed in new processes, worse in all {len(medians)} launches"
    )


def _launch_medians(metric: Metric, pairs: Sequence[Pair]) -> Mapping[tuple[Look, int], float]:
    launches = dict.fromkeys((pair.look, pair.launch) for pair in pairs)
    return {
        launch: float(
            np.median(
                oriented_differences(
                    metric, [pair for pair in pairs if (pair.look, pair.launch) == launch]
                )
            )
        )
        for launch in launches
    }


def _all_unstable(rules: Sequence[TimedRule]) -> dict[str, TimedVerdict]:
    reason = "too many rounds were spoiled by the machine"
    return {rule.metric.name: TimedVerdict(GateVerdict.UNSTABLE, reason) for rule in rules}
