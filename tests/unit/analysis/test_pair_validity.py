import pytest

from llmprof.analysis.pair_validity import usual_canary_hz, why_spoiled
from llmprof.schema.run import Contention, DeviceTelemetry, Round
from tests.records import QUIET, a_run_record

ROUND = a_run_record(rounds=1, noise=0.0).rounds[0]


def after(telemetry: DeviceTelemetry | None = None, **contention: float) -> Round:
    changed: Contention = QUIET.model_copy(update=contention)
    return ROUND.model_copy(update={"contention": changed, "telemetry": telemetry})


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        (after(worst_thread_fraction=0.2), "waited for a CPU"),
        (after(steal_fraction=0.2), "hypervisor"),
        (after(canary_hz=2.0e9), "clock was lower"),
        (after(DeviceTelemetry(foreign_processes=2)), "another process"),
        (after(DeviceTelemetry(event_reasons=("hw_thermal_slowdown",))), "hw thermal slowdown"),
    ],
)
def test_evidence_in_either_arm_spoils_the_pair(spoiled: Round, said: str) -> None:
    quiet = after()
    for turns in ([[quiet], [spoiled]], [[spoiled], [quiet]]):
        reason = why_spoiled(turns, 3.0e9)
        assert reason is not None
        assert said in reason


def test_a_quiet_pair_is_valid_and_the_other_arm_is_no_stranger() -> None:
    sibling = after(DeviceTelemetry(foreign_processes=1, event_reasons=("sw_power_cap",)))
    assert why_spoiled([[after()], [sibling]], 3.0e9) is None


def test_one_spoiled_round_of_three_leaves_the_median_alone() -> None:
    waited = after(worst_thread_fraction=0.5)
    assert why_spoiled([[after()], [after(), waited, after()]], None) is None
    assert why_spoiled([[after()], [after(), waited]], None) is not None


def test_how_long_it_took_is_no_evidence() -> None:
    slow = ROUND.model_copy(
        update={"steps": tuple(s.model_copy(update={"duration_s": 9.0}) for s in ROUND.steps)}
    )
    assert why_spoiled([[ROUND], [slow]], 3.0e9) is None


def test_the_usual_clock_is_the_median_of_those_known() -> None:
    rounds = [after(canary_hz=hz) for hz in (3.0e9, 3.1e9, 1.0e9)]
    assert usual_canary_hz(rounds) == 3.0e9
    unknown = ROUND.model_copy(update={"contention": QUIET.model_copy(update={"canary_hz": None})})
    assert usual_canary_hz([unknown]) is None
