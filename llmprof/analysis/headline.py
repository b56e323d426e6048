"""One line that compares the phases in plain words; only what the figures say."""

from collections.abc import Sequence

from llmprof import units
from llmprof.analysis.phase_case import PhaseCase
from llmprof.schema.cost import Phase
from llmprof.schema.verdict import Limit, Verdict


def headline(cases: Sequence[PhaseCase], verdicts: Sequence[Verdict]) -> str:
    """What decode reads and how busy it keeps arithmetic, beside prefill; what has no verdict."""
    by_phase = {case.phase: case for case in cases}
    if not by_phase:
        return "Nothing was measured: no round of the clean pass was completed."
    prefill, decode = by_phase.get(Phase.PREFILL), by_phase.get(Phase.DECODE)
    if decode is not None:
        text = _decode(decode) + (f"; {_beside(prefill, decode)}" if prefill else "")
    else:
        text = "; ".join(_plain(case) for case in cases)
    return " ".join([f"{text}.", *_unjudged(verdicts)])


def _decode(case: PhaseCase) -> str:
    weights = 0.0 if case.work is None else case.work.cost.traffic.weights
    busy = _arithmetic_busy(case)
    if not weights or busy is None:
        return _plain(case)
    sequences = case.measurement.num_sequences
    each = "each token" if sequences == 1 else f"each step of {sequences} tokens"
    return (
        f"Decode reads {units.decimal_bytes(weights)} of weights for {each} and keeps arithmetic "
        f"{units.percent(busy)} busy"
    )


def _beside(prefill: PhaseCase, decode: PhaseCase) -> str:
    fast, slow = prefill.measurement.new_tokens_per_s, decode.measurement.new_tokens_per_s
    return (
        f"prefill handles {units.ratio(fast.point / slow.point)} as many tokens per second "
        "with the same weights"
    )


def _plain(case: PhaseCase) -> str:
    """Speed alone, and arithmetic where its ceiling is known."""
    name = case.phase.value.capitalize()
    text = f"{name} handles {units.significant(case.measurement.new_tokens_per_s.point)} tok/s"
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
