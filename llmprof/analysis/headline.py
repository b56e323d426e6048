"""One line that compares the phases in plain words; only what the figures say."""

from collections.abc import Sequence

from llmprof import units
from llmprof.analysis.phase_case import PhaseCase
from llmprof.schema.cost import Phase
from llmprof.schema.verdict import Limit, Verdict

_SPENDS = {
    Limit.MEMORY: "in ops that move data",
    Limit.COMPUTE: "in matrix products",
    Limit.FIXED_COST: "starting ops",
    Limit.ELEMENTWISE: "in small work in cache",
    Limit.HOST: "waiting for the host",
    Limit.COMMUNICATION: "exchanging data between devices",
}


def headline(cases: Sequence[PhaseCase], verdicts: Sequence[Verdict]) -> str:
    """Where decode's time goes, how far from its roof, what it reads; prefill beside it; no verdicts."""
    by_phase = {case.phase: case for case in cases}
    if not by_phase:
        return "Nothing was measured: no round of the clean pass was completed."
    prefill, decode = by_phase.get(Phase.PREFILL), by_phase.get(Phase.DECODE)
    judged = {verdict.phase: _where(verdict) for verdict in verdicts}
    if decode is not None:
        told = [_about("decode", judged.get(Phase.DECODE, ""), _decode(decode))]
        told += [_beside(prefill, decode)] if prefill else []
    else:
        told = [_about(c.phase.value, judged.get(c.phase, ""), _plain(c)) for c in cases]
    return " ".join([*(f"{one}." for one in told), *_unjudged(verdicts)])


def _about(phase: str, where: str, work: str) -> str:
    """Where the time goes first; the work alone where there is no verdict."""
    name = phase.capitalize()
    return f"{name} {where}: it {work}" if where else f"{name} {work}"


def _where(verdict: Verdict) -> str:
    """For example: spends 81 % of its time in ops that move data and reaches 46 % of its roof."""
    fraction = verdict.roof_fraction
    reaches = "" if fraction is None else f"reaches {units.percent(fraction.point)} of its roof"
    share = next((one.share for one in verdict.limits if one.limit is verdict.limit), None)
    if verdict.limit is Limit.INCONCLUSIVE:
        return ""
    if share is None:  # a mixture: its shares stand in the verdict's sentence
        return reaches
    spends = f"spends {units.percent(share.point)} of its time {_SPENDS[verdict.limit]}"
    return f"{spends} and {reaches}" if reaches else spends


def _decode(case: PhaseCase) -> str:
    weights = 0.0 if case.work is None else case.work.cost.traffic.weights
    busy = _arithmetic_busy(case)
    if not weights or busy is None:
        return _plain(case)
    sequences = case.measurement.num_sequences
    each = "each token" if sequences == 1 else f"each step of {sequences} tokens"
    return (
        f"reads {units.decimal_bytes(weights)} of weights for {each} and keeps arithmetic "
        f"{units.percent(busy)} busy"
    )


def _beside(prefill: PhaseCase, decode: PhaseCase) -> str:
    fast, slow = prefill.measurement.new_tokens_per_s, decode.measurement.new_tokens_per_s
    return (
        f"Prefill handles {units.ratio(fast.point / slow.point)} as many tokens per second "
        "with the same weights"
    )


def _plain(case: PhaseCase) -> str:
    """Speed alone, and arithmetic where its ceiling is known."""
    text = f"handles {units.significant(case.measurement.new_tokens_per_s.point)} tok/s"
    busy = _arithmetic_busy(case)
    return text if not busy else f"{text} and keeps arithmetic {units.percent(busy)} busy"


def _arithmetic_busy(case: PhaseCase) -> float | None:
    """FLOPs at the matmul ceiling over the step's time."""
    if case.work is None or case.rates is None:
        return None
    rates = case.rates
    least_s = sum(op.flops / rates.flops_per_s(op.compute_dtype) for op in case.work.cost.ops)
    return least_s / case.measurement.step_s.point


def _unjudged(verdicts: Sequence[Verdict]) -> list[str]:
    """One sentence per first reason, with every phase that it holds for."""
    phases: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.limit == Limit.INCONCLUSIVE:
            phases.setdefault(verdict.reasons[0], []).append(verdict.phase.value)
    return [f"No verdict on {' and '.join(names)}: {reason}." for reason, names in phases.items()]
