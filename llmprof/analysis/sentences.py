"""Verdicts and the headline in plain words. Every number comes from the figures passed in."""

from collections.abc import Sequence

from llmprof import units
from llmprof.analysis.limits import NAMED_SHARE
from llmprof.analysis.rates import Rates
from llmprof.schema.cost import Phase
from llmprof.schema.ledger import Part
from llmprof.schema.verdict import Limit, LimitShare, Saturation

LIMIT_WORDS = {
    Limit.MEMORY: "memory side",
    Limit.COMPUTE: "compute side",
    Limit.FIXED_COST: "fixed cost of small ops",
    Limit.ELEMENTWISE: "elementwise work in cache",
    Limit.HOST: "host",
    Limit.COMMUNICATION: "communication",
    Limit.MIXTURE: "mixture",
    Limit.INCONCLUSIVE: "inconclusive",
}
_MEMORY_WORDS = {
    Part.MEMORY_WEIGHTS: "weights",
    Part.MEMORY_KV: "KV cache",
    Part.MEMORY_OTHER: "scores, copies and activations",
}


def inconclusive_sentence(phase: Phase, reasons: Sequence[str]) -> str:
    return f"{phase.value.capitalize()} is inconclusive: {'; '.join(reasons)}."


def verdict_sentence(
    phase: Phase,
    limit: Limit,
    shares: Sequence[LimitShare],
    saturation: Saturation,
    link: str | None,
) -> str:
    """Both answers: what limits, and (where `link` speaks of one) how busy that link is."""
    text = f"{phase.value.capitalize()} {_limit_clause(limit, shares)}"
    if link is not None:
        text += f"; {link}: {_saturation_words(saturation)}"
    named = {one.limit for one in shares[:2]} if limit == Limit.MIXTURE else {limit}
    others = [
        f"{units.percent(one.share.point)} {LIMIT_WORDS[one.limit]}"
        for one in shares
        if one.limit not in named and one.share.point >= NAMED_SHARE
    ]
    return f"{text}. {_also(others)}".strip()


def link_clause(
    sides: Sequence[Limit],
    fraction: float,
    rates: Rates,
    *,
    dtypes: Sequence[str],
    main_part: Part,
    skinny: float | None,
) -> str:
    """How fast the limiting link ran, against its ceiling and against the bare kernel.

    `fraction` is that of the ceiling, `rates` are those of the phase's median step, `dtypes` are
    those multiplied in, `main_part` is what most of the memory traffic is for, `skinny` the bare
    kernel's fraction of the read ceiling.
    """
    share = units.percent(fraction)
    if len(sides) > 1 or (sides[0] == Limit.COMPUTE and len(dtypes) > 1):
        return f"together they reach {share} of their ceilings"
    if sides[0] == Limit.COMPUTE:
        ceiling = rates.flops_per_s(dtypes[0])
        return (
            f"its matrix products run at {units.flops_per_s(fraction * ceiling)}, {share} of the "
            f"{units.flops_per_s(ceiling)} {dtypes[0]} matmul ceiling of its rounds"
        )
    achieved = fraction * rates.read_bytes_per_s
    kernel = f" (skinny matmul kernel alone: {units.percent(skinny)})" if skinny else ""
    return (
        f"its ops move data, mostly {_MEMORY_WORDS[main_part]}, at {units.bytes_per_s(achieved)}, "
        f"{share} of the {units.bytes_per_s(rates.read_bytes_per_s)} read ceiling of its rounds{kernel}"
    )


def _limit_clause(limit: Limit, shares: Sequence[LimitShare]) -> str:
    share = units.percent(shares[0].share.point)
    if limit == Limit.MIXTURE:
        first, second = (
            f"{units.percent(one.share.point)} {LIMIT_WORDS[one.limit]}" for one in shares[:2]
        )
        return f"is a mixture: {first}, {second}"
    if limit in (Limit.MEMORY, Limit.COMPUTE):
        return f"is on the {LIMIT_WORDS[limit]}: {share} of the step"
    if limit == Limit.HOST:
        return f"is limited by the host: {share} of the step lies outside every op"
    return f"is limited by the {LIMIT_WORDS[limit]}: {share} of the step"


def _saturation_words(saturation: Saturation) -> str:
    if saturation == Saturation.UNKNOWN:
        return "how saturated cannot be told, the interval spans every class"
    return saturation.value.replace("_", "-")


def _also(others: Sequence[str]) -> str:
    return f"Also {', '.join(others)}." if others else ""
