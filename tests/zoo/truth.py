"""What is true of a planted bottleneck, and whether a verdict says so."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llmprof.analysis.limits import class_of
from llmprof.schema.cost import Phase
from llmprof.schema.report import Report
from llmprof.schema.verdict import Limit, Saturation, Verdict

SHARE_POINTS = 0.05
"""Shares of a mixture must be met within so much of the step."""


class Outcome(StrEnum):
    RIGHT = "right"
    WRONG = "WRONG"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Truth:
    """The right answer; what is None or empty is not known by construction and not asked."""

    words: str
    limit: Limit | None = None
    shares: Mapping[Limit, float] = field(default_factory=dict)
    saturation: Saturation | None = None
    level: str | None = None
    """Start of the level of memory that the roof must speak of."""
    caveats: tuple[str, ...] = ()
    refusal: str | None = None
    """Words of the reason for which there must be no verdict."""


@dataclass(frozen=True, slots=True)
class Grade:
    outcome: Outcome
    why: str = ""


def grade(truth: Truth, report: Report) -> Grade:
    """Right, wrong or inconclusive; a verdict that admits the right class in its interval is the last."""
    verdict = next((one for one in report.verdicts if one.phase is Phase.DECODE), None)
    missing = set(truth.caveats) - {caveat.code for caveat in report.caveats}
    if missing:
        return Grade(Outcome.WRONG, f"no caveat {', '.join(sorted(missing))}")
    if truth.refusal is not None:
        return _refused(truth.refusal, verdict)
    if truth.limit is None:
        return Grade(Outcome.RIGHT)
    if verdict is None:
        return Grade(Outcome.WRONG, "no decode phase")
    if verdict.limit is Limit.INCONCLUSIVE:
        return Grade(Outcome.INCONCLUSIVE, "; ".join(verdict.reasons))
    wrong = list(_differences(truth, verdict, report))
    if wrong:
        return Grade(Outcome.WRONG, "; ".join(wrong))
    return _saturation(truth.saturation, verdict)


def _refused(words: str, verdict: Verdict | None) -> Grade:
    if verdict is None or verdict.limit is not Limit.INCONCLUSIVE:
        return Grade(Outcome.WRONG, "judged all the same")
    if not any(words in reason for reason in verdict.reasons):
        return Grade(Outcome.WRONG, f"refused for another reason: {'; '.join(verdict.reasons)}")
    return Grade(Outcome.RIGHT)


def _differences(truth: Truth, verdict: Verdict, report: Report) -> Iterator[str]:
    if verdict.limit is not truth.limit:
        yield f"says {verdict.limit.value}"
    shares = {one.limit: one.share.point for one in verdict.limits}
    for limit, share in truth.shares.items():
        distance = shares.get(limit, 0.0) - share
        if abs(distance) > SHARE_POINTS:
            yield f"{limit.value} off by {100 * distance:+.1f} points"
    level = report.roof.read_level if report.roof is not None else ""
    if truth.level is not None and not level.startswith(truth.level):
        yield f"judged by {level}"


def _saturation(wanted: Saturation | None, verdict: Verdict) -> Grade:
    if wanted is None or verdict.saturation is wanted:
        return Grade(Outcome.RIGHT)
    fraction = verdict.saturation_fraction
    if fraction is not None and wanted in (class_of(fraction.low), class_of(fraction.high)):
        return Grade(Outcome.INCONCLUSIVE, "the interval of the saturation spans two classes")
    return Grade(Outcome.WRONG, f"says {verdict.saturation.value}")
