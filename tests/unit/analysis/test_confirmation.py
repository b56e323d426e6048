from datetime import UTC, datetime

import pytest

from llmprof.analysis.confirmation import confirm, paired_speedup
from llmprof.analysis.prediction import BaseRun, predict
from llmprof.schema.confirmation import Confirmation, OutputComparison
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.run import RunRecord
from llmprof.store.settings_file import changed_settings
from tests.predicted_runs import a_base_run
from tests.step_plans import model_phase

PHASES = (model_phase(Phase.PREFILL), model_phase(Phase.DECODE))
SLOW = (model_phase(Phase.PREFILL), model_phase(Phase.DECODE, efficiency=0.45))


def _confirmed(base: RunRecord, target: RunRecord) -> Confirmation:
    settings = changed_settings(base.settings, ["execution.threads=1"])
    prediction = predict(BaseRun.of(base), settings)
    return confirm(
        prediction,
        base,
        target,
        OutputComparison(same=True, tokens=8, equal_tokens=8),
        predicted_at=datetime(2026, 11, 29, tzinfo=UTC),
    )


def test_drift_that_hits_both_arms_cancels() -> None:
    """Both runs have the same noise per round, however large: their ratio has none."""
    arms = [
        a_base_run(phases=plans).model_copy(
            update={"rounds": a_base_run(phases=plans, seed=3).rounds}
        )
        for plans in (PHASES, SLOW)
    ]
    found = paired_speedup(arms[0], arms[1], Phase.DECODE)
    truth = PHASES[1].step_s / SLOW[1].step_s
    assert found.point == pytest.approx(truth, rel=1e-6)
    assert found.num_samples == 8


def test_the_residual_is_split_over_the_groups_that_moved() -> None:
    found = _confirmed(a_base_run(phases=PHASES), a_base_run(phases=SLOW))
    decode = next(one for one in found.phases if one.phase is Phase.DECODE)
    difference = SLOW[1].step_s - PHASES[1].step_s
    assert sum(one.residual_s for one in decode.residuals) == pytest.approx(difference, rel=0.02)
    assert decode.residuals[0].group in (OpGroup.GATE_UP_PROJECTION, OpGroup.LM_HEAD)
    assert not decode.inside
    assert "gate/up projection +" in decode.sentence


def test_a_prediction_that_held_says_so() -> None:
    found = _confirmed(a_base_run(phases=PHASES), a_base_run(phases=PHASES))
    for one in found.phases:
        assert one.inside
        assert one.error == pytest.approx(0.0, abs=1e-6)
        assert "every op group within" in one.sentence
