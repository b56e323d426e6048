"""A prediction against the pairs that were measured after it: error, cover, and the residual's split."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from llmprof import units
from llmprof.analysis.compare_pairs import round_pairs
from llmprof.analysis.paired import paired_ratio
from llmprof.analysis.phases import round_steps
from llmprof.analysis.prediction import BaseRun
from llmprof.analysis.validity import select_rounds
from llmprof.schema.confirmation import (
    Confirmation,
    GroupResidual,
    OutputComparison,
    PhaseConfirmation,
)
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.measurement import Caveat, Estimate
from llmprof.schema.prediction import PhasePrediction, Prediction
from llmprof.schema.run import Round, RunRecord
from llmprof.units import percent, ratio

NAMED_SHARE: Final = 0.02
"""Of the step: a smaller residual of a group is not worth a word."""
_MOST_NAMED: Final = 3


def confirm(
    prediction: Prediction,
    base: RunRecord,
    target: RunRecord,
    outputs: OutputComparison,
    *,
    predicted_at: datetime,
) -> Confirmation:
    """`base` and `target` were measured in turn: their rounds are pairs, in order."""
    before, after = BaseRun.of(base), BaseRun.of(target)
    return Confirmation(
        prediction=prediction,
        predicted_at=predicted_at,
        measured_at=target.created,
        base_run=base.id,
        target_run=target.id,
        pairs=min(len(base.rounds), len(target.rounds)),
        phases=tuple(
            _phase(one, before, after)
            for one in prediction.phases
            if one.phase in before.cases and one.phase in after.cases
        ),
        outputs=outputs,
        caveats=_disturbed(base, target),
    )


def paired_speedup(base: RunRecord, target: RunRecord, phase: Phase) -> Estimate:
    """Base step over target step, round by round: what drifts in both cancels.

    Pairs of which one round was disturbed are left out while three others remain.
    """
    pairs = round_pairs(base, target)
    before, after = (_step_s(rounds, phase) for rounds in (pairs.baseline, pairs.candidate))
    common = sorted(before.keys() & after.keys())
    return paired_ratio([after[index] for index in common], [before[index] for index in common])


def _step_s(rounds: Sequence[Round], phase: Phase) -> dict[int, float]:
    return {one.round.index: one.step_s for one in round_steps(rounds, phase)}


def _phase(one: PhasePrediction, before: BaseRun, after: BaseRun) -> PhaseConfirmation:
    measured = paired_speedup(before.record, after.record, one.phase)
    assert one.speedup is not None, "it was predicted from a run"
    residuals = _residuals(one, before, after)
    byte_ratio = (
        before.cases[one.phase].work.cost.traffic.required
        / after.cases[one.phase].work.cost.traffic.required
    )
    return PhaseConfirmation(
        phase=one.phase,
        predicted_speedup=one.speedup.point,
        predicted_low=one.speedup.low,
        predicted_high=one.speedup.high,
        speedup=measured,
        inside=one.speedup.low <= measured.point <= one.speedup.high,
        error=one.speedup.point / measured.point - 1,
        byte_ratio=byte_ratio,
        residuals=residuals,
        sentence=_sentence(one, measured, byte_ratio, residuals, after),
    )


def _residuals(one: PhasePrediction, before: BaseRun, after: BaseRun) -> tuple[GroupResidual, ...]:
    """By group, with the prediction scaled to the speed that the machine had during the pairs."""
    assert one.base_step_s is not None
    drift = before.cases[one.phase].splits.center.step_s / one.base_step_s.point
    center = after.cases[one.phase].splits.center
    predicted = {group.group: group for group in one.groups}
    groups: list[OpGroup | None] = [*dict.fromkeys([*predicted, *center.groups])]
    found = []
    for group in groups:
        measured_s = center.host_s if group is None else center.time_of((group,))
        forecast = predicted.get(group)
        expected_s = drift * forecast.predicted_s.point if forecast else 0.0
        found.append(
            GroupResidual(
                group=group,
                base_s=forecast.base_s if forecast else None,
                predicted_s=expected_s,
                measured_s=measured_s,
                residual_s=measured_s - expected_s,
            )
        )
    return tuple(sorted(found, key=lambda part: -abs(part.residual_s)))


def _sentence(
    one: PhasePrediction,
    measured: Estimate,
    byte_ratio: float,
    residuals: Sequence[GroupResidual],
    after: BaseRun,
) -> str:
    assert one.speedup is not None
    fewer = f"{ratio(byte_ratio)} fewer" if byte_ratio >= 1 else f"{ratio(1 / byte_ratio)} more"
    told = (
        f"{one.phase.value}: {fewer} bytes, predicted {ratio(one.speedup.point)} "
        f"[{units.significant(one.speedup.low)}, {units.significant(one.speedup.high)}], measured "
        f"{ratio(measured.point)} [{units.significant(measured.low)}, "
        f"{units.significant(measured.high)}]"
    )
    step_s = after.cases[one.phase].splits.center.step_s
    named = [part for part in residuals if abs(part.residual_s) >= NAMED_SHARE * step_s]
    if not named:
        return f"{told}: every op group within {percent(NAMED_SHARE)} of the step"
    return f"{told}: {', '.join(map(_residual, named[:_MOST_NAMED]))}"


def _residual(part: GroupResidual) -> str:
    name = "between the groups" if part.group is None else part.group.label
    return f"{name} {units.signed_seconds(part.residual_s)}"


def _disturbed(*records: RunRecord) -> tuple[Caveat, ...]:
    """What is said about pairs that were disturbed is doubtful."""
    busy = sum(len(select_rounds(record.rounds).reasons) for record in records)
    if not busy:
        return ()
    total = sum(len(record.rounds) for record in records)
    return (
        Caveat(
            code="contended",
            message=f"{busy} of {total} rounds were disturbed by other processes or a lower clock",
            remedy="Confirm again on a quiet machine",
        ),
    )
