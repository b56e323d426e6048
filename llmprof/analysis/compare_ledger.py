"""Where the difference of two steps lies, part by part."""

from collections.abc import Sequence

from llmprof.schema.comparison import PartChange
from llmprof.schema.cost import Phase
from llmprof.schema.ledger import Ledger, Part
from llmprof.schema.measurement import Estimate


def part_changes(baseline: Sequence[Ledger], candidate: Sequence[Ledger]) -> tuple[PartChange, ...]:
    """Every part of every phase that both sides have split; the differences sum to the steps'."""
    changes = []
    for phase in Phase:
        one, other = _parts(baseline, phase), _parts(candidate, phase)
        if one is None or other is None:
            continue
        changes += [
            PartChange(
                phase=phase,
                part=part,
                baseline_s=one.get(part),
                candidate_s=other.get(part),
                difference_s=_difference(one.get(part), other.get(part)),
            )
            for part in Part
            if part in one or part in other
        ]
    return tuple(changes)


def _parts(ledgers: Sequence[Ledger], phase: Phase) -> dict[Part, Estimate] | None:
    ledger = next((one for one in ledgers if one.phase is phase), None)
    return {part.part: part.time_s for part in ledger.parts} if ledger else None


def _difference(baseline: Estimate | None, candidate: Estimate | None) -> Estimate:
    """Both intervals hold at once with at least the sum of their confidences minus one."""
    known = [one for one in (baseline, candidate) if one is not None]
    base = baseline or _zero(known[0])
    cand = candidate or _zero(known[0])
    return Estimate(
        point=cand.point - base.point,
        low=cand.low - base.high,
        high=cand.high - base.low,
        confidence=max(0.0, base.confidence + cand.confidence - 1),
        num_samples=min(one.num_samples for one in known),
    )


def _zero(like: Estimate) -> Estimate:
    return like.model_copy(update={"point": 0.0, "low": 0.0, "high": 0.0, "confidence": 0.999})
