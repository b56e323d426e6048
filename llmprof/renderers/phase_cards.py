"""What the page says first about each phase: its time, its two answers, its distance to the roof."""

from dataclasses import dataclass

from llmprof import units
from llmprof.renderers.datasheet_text import utilization
from llmprof.renderers.estimates import interval, point_and_interval, shared_confidence
from llmprof.renderers.wording import (
    LIMIT_NAMES,
    SATURATION_NAMES,
    TOKEN_NAMES,
    ceiling_name,
    one_line,
    tested_words,
    unsaid_reasons,
)
from llmprof.schema.measurement import PhaseMeasurement
from llmprof.schema.report import Report
from llmprof.schema.verdict import Limit, Saturation, Verdict

_SIGNS = {
    Saturation.SATURATED: "●",
    Saturation.UNSATURATED: "◐",
    Saturation.KERNEL_LIMITED: "○",
    Saturation.UNKNOWN: "?",
}

SHOWN_SHARE = 0.01
"""Smaller shares of a step are left to the tables and to the data."""


@dataclass(frozen=True, slots=True)
class Answer:
    question: str
    word: str
    detail: str


@dataclass(frozen=True, slots=True)
class RoofBar:
    """A bar of `percent` per cent with the roof at `roof_percent`: above the roof it goes beyond."""

    text: str
    percent: float
    roof_percent: float


@dataclass(frozen=True, slots=True)
class PhaseCard:
    phase: str
    step: str
    step_interval: str
    rates: tuple[str, ...]
    utilization: str
    """MFU and MBU; empty where no datasheet is known."""
    basis: str
    answers: tuple[Answer, ...]
    roof: RoofBar | None
    sentence: str
    reasons: tuple[str, ...]
    tested: str
    """Which interventions the verdict survived; empty where none was made."""
    interventions: tuple[str, ...]


def phase_cards(report: Report) -> tuple[PhaseCard, ...]:
    return tuple(_card(phase, report) for phase in report.phases)


def _card(phase: PhaseMeasurement, report: Report) -> PhaseCard:
    verdict = next((v for v in report.verdicts if v.phase is phase.phase), None)
    point = next((p for p in report.points if p.label == phase.phase.value), None)
    return PhaseCard(
        phase=phase.phase.value,
        step=units.seconds(phase.step_s.point),
        step_interval=interval(phase.step_s, units.seconds),
        rates=_rates(phase),
        utilization=utilization(point) if point else "",
        basis=_basis(phase, verdict),
        answers=_answers(verdict, report) if verdict else (),
        roof=_roof_bar(verdict) if verdict else None,
        sentence=_sentence(verdict),
        reasons=_reasons(verdict),
        tested=tested_words(verdict) if verdict else "",
        interventions=_interventions(verdict),
    )


def _interventions(verdict: Verdict | None) -> tuple[str, ...]:
    """What each changed, what the verdict forecast, what came."""
    outcomes = () if verdict is None else verdict.interventions
    return tuple(one_line(f"{one.kind.value.replace('_', ' ')}: {one.words}") for one in outcomes)


def _sentence(verdict: Verdict | None) -> str:
    """Empty where the reasons say it all: an inconclusive verdict's sentence only strings them."""
    if verdict is None:
        return "not judged"
    inconclusive = verdict.limit is Limit.INCONCLUSIVE and verdict.reasons
    return "" if inconclusive else one_line(verdict.sentence)


def _reasons(verdict: Verdict | None) -> tuple[str, ...]:
    if verdict is None:
        return ()
    if verdict.limit is Limit.INCONCLUSIVE:
        return tuple(map(one_line, verdict.reasons))
    return unsaid_reasons(verdict)


def _rates(phase: PhaseMeasurement) -> tuple[str, ...]:
    token = TOKEN_NAMES[phase.phase]
    total = point_and_interval(phase.new_tokens_per_s, units.significant)
    if phase.num_sequences == 1:
        return (f"{total} {token}",)
    each = point_and_interval(phase.new_tokens_per_s_per_sequence, units.significant)
    return (f"{total} {token} in total", f"{each} {token} per sequence")


def _basis(phase: PhaseMeasurement, verdict: Verdict | None) -> str:
    stated = [phase.step_s, phase.new_tokens_per_s]
    if verdict:
        stated += [share.share for share in verdict.limits]
        stated += [e for e in (verdict.saturation_fraction, verdict.roof_fraction) if e]
    rejected = f", {phase.num_rejected_rounds} rejected" if phase.num_rejected_rounds else ""
    context = f", {phase.context_tokens:,} tokens of context per sequence"
    return (
        f"measured: {units.number_of(phase.num_steps, 'step')} in {units.number_of(phase.num_rounds, 'round')}{rejected}{context}; "
        f"{shared_confidence(stated)}"
    )


def _answers(verdict: Verdict, report: Report) -> tuple[Answer, ...]:
    shares = [
        f"{LIMIT_NAMES[share.limit]} {point_and_interval(share.share, units.percent)}"
        for share in verdict.limits
        if share.share.point >= SHOWN_SHARE
    ]
    named = ", ".join(part.label for part in verdict.parts_named)
    limits = "; ".join(shares) + (f". Largest parts: {named}" if named else "")
    saturation = "no side limits, so none is judged"
    if verdict.saturation_fraction:
        fraction = point_and_interval(verdict.saturation_fraction, units.percent)
        saturation = f"{fraction} of the {ceiling_name(verdict.limit, report)} while it limits"
    sign = _SIGNS[verdict.saturation]
    return (
        Answer("What limits", LIMIT_NAMES[verdict.limit], limits),
        Answer("How saturated", f"{sign} {SATURATION_NAMES[verdict.saturation]}", saturation),
    )


def _roof_bar(verdict: Verdict) -> RoofBar | None:
    fraction = verdict.roof_fraction
    if fraction is None:
        return None
    longest = max(1.0, fraction.point)
    return RoofBar(
        text=point_and_interval(fraction, units.percent),
        percent=round(100 * fraction.point / longest, 1),
        roof_percent=round(100 / longest, 1),
    )
