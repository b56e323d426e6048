import pytest

from llmprof.analysis.latency import measure_latency
from llmprof.schema.cost import Phase, SequenceShape, StepShape
from llmprof.schema.measurement import LatencyMeasurement
from llmprof.schema.run import Round, StepSample
from tests.records import QUIET


def _sample(phase: Phase, start_s: float, end_s: float, device_s: float | None) -> StepSample:
    prefill = phase == Phase.PREFILL
    sequence = SequenceShape(new_tokens=16 if prefill else 1, cached_tokens=0 if prefill else 16)
    return StepSample(
        shape=StepShape(phase=phase, sequences=(sequence,), logit_rows=1),
        start_s=start_s,
        duration_s=end_s - start_s,
        device_s=device_s,
    )


def _latency(
    *steps: tuple[Phase, float, float], device_s: float | None = None
) -> LatencyMeasurement:
    """Steps as (phase, start, end)."""
    return measure_latency(
        [
            Round(
                index=0,
                before=None,
                after=None,
                steps=tuple(_sample(*step, device_s) for step in steps),
                contention=QUIET,
            )
        ]
    )


def test_the_first_token_belongs_to_ttft_and_not_to_tpot() -> None:
    """190 tokens, 4409.816 ms in all, 3751.546 ms after the first: 189 intervals, 50.38 tok/s."""
    step_s = 3.751546 / 189
    start_s = 4.409816 - 3.751546
    latency = _latency(
        (Phase.PREFILL, 0.0, start_s),
        *((Phase.DECODE, start_s + i * step_s, start_s + (i + 1) * step_s) for i in range(189)),
    )
    assert latency.ttft_s is not None
    assert latency.tpot_s is not None
    assert latency.itl_s is not None
    assert latency.ttft_s.point == pytest.approx(0.658270)
    assert 1 / latency.tpot_s.point == pytest.approx(50.38, abs=0.005)
    assert latency.itl_s.point == pytest.approx(step_s)
    assert 190 / (latency.ttft_s.point + 189 * latency.tpot_s.point) == pytest.approx(
        43.09, abs=0.005
    )


def test_one_output_token_has_no_time_per_token() -> None:
    latency = _latency((Phase.PREFILL, 0.0, 0.1))
    assert latency.ttft_s is not None
    assert latency.tpot_s is None
    assert latency.itl_s is None


def test_pauses_between_steps_are_felt() -> None:
    latency = _latency(
        (Phase.PREFILL, 5.0, 5.1), (Phase.DECODE, 5.2, 5.3), (Phase.DECODE, 5.4, 5.5)
    )
    assert latency.tpot_s is not None
    assert latency.tpot_s.point == pytest.approx(0.2)


def test_the_last_chunk_of_a_prefill_gives_the_first_token() -> None:
    latency = _latency(
        (Phase.PREFILL, 0.0, 0.1), (Phase.PREFILL, 0.1, 0.3), (Phase.DECODE, 0.3, 0.35)
    )
    assert latency.ttft_s is not None
    assert latency.ttft_s.point == pytest.approx(0.3)


def test_without_a_prefill_there_is_no_first_token() -> None:
    latency = _latency((Phase.DECODE, 1.0, 1.2), (Phase.DECODE, 1.2, 1.6))
    assert latency.ttft_s is None
    assert latency.tpot_s is not None
    assert latency.tpot_s.point == pytest.approx(0.3)


def test_a_device_behind_the_host_sets_the_pace() -> None:
    steps = (
        (Phase.PREFILL, 0.0, 0.001),
        (Phase.DECODE, 0.001, 0.002),
        (Phase.DECODE, 0.002, 0.003),
    )
    latency = _latency(*steps, device_s=0.02)
    assert latency.ttft_s is not None
    assert latency.tpot_s is not None
    assert latency.ttft_s.point == pytest.approx(0.02)
    assert latency.tpot_s.point == pytest.approx(0.02)


def test_mixed_steps_have_no_common_start() -> None:
    latency = _latency((Phase.PREFILL, 0.0, 0.1), (Phase.MIXED, 0.1, 0.2), (Phase.DECODE, 0.2, 0.3))
    assert (latency.ttft_s, latency.tpot_s, latency.itl_s) == (None, None, None)


def test_no_rounds_no_latency() -> None:
    assert measure_latency([]).ttft_s is None
