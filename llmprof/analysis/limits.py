"""The two answers: what limits a step, and how busy that link is while it does."""

from collections.abc import Callable, Mapping, Sequence

from llmprof.analysis.splits import PhaseSplits
from llmprof.analysis.step_split import StepSplit
from llmprof.schema.ledger import Part
from llmprof.schema.measurement import Estimate
from llmprof.schema.verdict import Limit, LimitShare, Saturation

DOMINANT_SHARE = 0.60
SECOND_SHARE = 0.30
"""Below the first with a second of at least the second, a step is a mixture."""
NAMED_SHARE = 0.15
SATURATED = 0.80
UNSATURATED = 0.60
MIN_CONFIDENCE = 0.5
"""An interval that covers less says nothing about how firm an answer is: that of one round is a point."""
SIDES = (Limit.MEMORY, Limit.COMPUTE)


def limit_shares(splits: PhaseSplits) -> tuple[LimitShare, ...]:
    """Shares of the step, largest first: sides with their loss and fixed cost, the rest whole."""
    shares = [
        LimitShare(limit=limit, share=splits.estimate(_share_of(limit)))
        for limit in splits.center.limits_s()
    ]
    return tuple(sorted(shares, key=lambda one: -one.share.point))


def _share_of(limit: Limit) -> Callable[[StepSplit], float]:
    return lambda split: split.limits_s().get(limit, 0.0) / split.step_s


def what_limits(shares: Sequence[LimitShare]) -> Limit:
    """The largest share, or `mixture` where it does not dominate a large second one."""
    return _decide({one.limit: one.share.point for one in shares})


def answers(shares: Sequence[LimitShare]) -> frozenset[Limit]:
    """Every answer that the intervals of the two largest shares leave possible."""
    first, *others = shares
    if not others:
        return frozenset({first.limit})
    second = others[0]
    against = {first.limit: first.share.low, second.limit: second.share.high}
    for_it = {first.limit: first.share.high, second.limit: second.share.low}
    return frozenset({_decide(against), what_limits(shares), _decide(for_it)})


def is_firm(shares: Sequence[LimitShare]) -> bool:
    """Whether there is one answer alone; of intervals that cover too little none is firm."""
    return shares[0].share.confidence >= MIN_CONFIDENCE and len(answers(shares)) == 1


def named_parts(split: StepSplit) -> tuple[Part, ...]:
    """The largest part of the ledger and every other that matters, largest first."""
    parts = sorted(split.parts_s().items(), key=lambda item: -item[1])
    return tuple(
        part
        for index, (part, time_s) in enumerate(parts)
        if index == 0 or time_s / split.step_s >= NAMED_SHARE
    )


def limiting_sides(limit: Limit, shares: Sequence[LimitShare]) -> tuple[Limit, ...]:
    """The links that `limit` speaks of: of a mixture those among its two largest shares."""
    if limit == Limit.MIXTURE:
        return tuple(one.limit for one in shares[:2] if one.limit in SIDES)
    return (limit,) if limit in SIDES else ()


def saturation_fraction(splits: PhaseSplits, sides: Sequence[Limit]) -> Estimate | None:
    """Link time over time of the ops on `sides`; None where no side limits.

    Only groups with a link count, on both sides of the ratio: work in cache is no use of it.
    """
    if not sides:
        return None

    def fraction(split: StepSplit) -> float:
        limits = split.limits_s()
        time_s = sum(limits.get(side, 0.0) for side in sides)
        return sum(split.link_s(side) for side in sides) / time_s if time_s else 0.0

    return splits.estimate(fraction)


def class_of(fraction: float) -> Saturation:
    """Of one number, whatever its interval."""
    if fraction >= SATURATED:
        return Saturation.SATURATED
    return Saturation.UNSATURATED if fraction >= UNSATURATED else Saturation.KERNEL_LIMITED


def saturation_of(fraction: Estimate | None) -> Saturation:
    """The class of the point; unknown where the interval spans all three classes."""
    if fraction is None:
        return Saturation.UNKNOWN
    if fraction.low < UNSATURATED and fraction.high >= SATURATED:
        return Saturation.UNKNOWN
    return class_of(fraction.point)


def saturation_is_firm(fraction: Estimate) -> bool:
    return fraction.confidence >= MIN_CONFIDENCE and class_of(fraction.low) == class_of(
        fraction.high
    )


def _decide(shares: Mapping[Limit, float]) -> Limit:
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    first, share = ordered[0]
    if share < DOMINANT_SHARE and len(ordered) > 1 and ordered[1][1] >= SECOND_SHARE:
        return Limit.MIXTURE
    return first
