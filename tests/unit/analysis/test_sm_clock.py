"""A GPU whose clock is another one while it computes than while its ceilings are read."""

import pytest

from llmprof.analysis.rates import median_rates, round_rates
from llmprof.analysis.report import build_report
from llmprof.analysis.sm_clock import clock_caveats, phase_clock_hz
from llmprof.schema.cost import Phase
from llmprof.schema.run import ClockSample, DeviceTelemetry, Round, RunRecord
from tests.records import a_run_record

FAST, SLOW = 1.8e9, 1.35e9


def with_clocks(
    samples: dict[Phase, list[float]], *, read_at_hz: float | None, device_delay_s: float = 0.0
) -> RunRecord:
    """Samples spread over the first step of each phase; readings at one clock.

    With a delay the host gave every step that much before the device is done with the one before.
    """
    record = a_run_record(rounds=3)
    return record.model_copy(
        update={
            "rounds": tuple(
                _with_clocks(one, samples, read_at_hz, device_delay_s) for one in record.rounds
            )
        }
    )


def _with_clocks(
    one: Round, samples: dict[Phase, list[float]], read_at_hz: float | None, delay_s: float
) -> Round:
    found = []
    for phase, clocks_hz in samples.items():
        step = next(step for step in one.steps if step.shape.phase is phase)
        for index, hz in enumerate(clocks_hz):
            within_s = step.duration_s * (index + 0.5) / len(clocks_hz)
            found.append(ClockSample(time_s=step.start_s + delay_s + within_s, sm_clock_hz=hz))
    sides = {
        side: None if reading is None else reading.model_copy(update={"sm_clock_hz": read_at_hz})
        for side, reading in (("before", one.before), ("after", one.after))
    }
    return one.model_copy(
        update={"telemetry": DeviceTelemetry(sm_clock_samples=tuple(found)), **sides}
    )


def test_a_ceiling_is_scaled_by_the_clock_of_the_phase_and_memory_is_not() -> None:
    """Prefill at 1.35 GHz beside readings at 1.8 GHz: three quarters of the arithmetic."""
    record = with_clocks(
        {Phase.PREFILL: [SLOW, SLOW, FAST, SLOW], Phase.DECODE: [FAST] * 3}, read_at_hz=FAST
    )
    plain = median_rates(record.rounds, record.ceilings)
    prefill = median_rates(record.rounds, record.ceilings, Phase.PREFILL)
    decode = median_rates(record.rounds, record.ceilings, Phase.DECODE)
    assert plain is not None
    assert prefill is not None
    assert prefill.matmul_flops_per_s == pytest.approx(0.75 * plain.matmul_flops_per_s)
    assert prefill.read_bytes_per_s == plain.read_bytes_per_s
    assert decode == plain


@pytest.mark.parametrize(
    ("samples", "read_at_hz"),
    [([SLOW] * 2, FAST), ([], FAST), ([SLOW] * 4, None)],
    ids=["too-few", "none", "reading-without-clock"],
)
def test_a_clock_that_is_not_known_scales_nothing(
    samples: list[float], read_at_hz: float | None
) -> None:
    record = with_clocks({Phase.PREFILL: samples}, read_at_hz=read_at_hz)
    one = record.rounds[0]
    assert round_rates(one, record.ceilings, Phase.PREFILL) == round_rates(one, record.ceilings)
    assert not [*clock_caveats(record.rounds, Phase.PREFILL)]


def test_a_device_that_is_behind_the_host_is_at_the_step_that_it_computes() -> None:
    """The host gives both steps at once; the device takes a second for the first of them."""
    record = a_run_record(rounds=1)
    prefill = record.rounds[0].steps[0].model_copy(update={"device_s": 1.0})
    decode = (
        record.rounds[0]
        .steps[1]
        .model_copy(update={"start_s": prefill.start_s + 0.001, "device_s": 1.0})
    )
    samples = tuple(
        ClockSample(time_s=prefill.start_s + at_s, sm_clock_hz=hz)
        for at_s, hz in [
            (0.1, SLOW),
            (0.5, SLOW),
            (0.9, SLOW),
            (1.1, FAST),
            (1.5, FAST),
            (1.9, FAST),
        ]
    )
    one = record.rounds[0].model_copy(
        update={
            "steps": (prefill, decode),
            "telemetry": DeviceTelemetry(sm_clock_samples=samples),
        }
    )
    assert prefill.shape.phase is Phase.PREFILL
    assert phase_clock_hz(one, Phase.PREFILL) == SLOW
    assert phase_clock_hz(one, Phase.DECODE) == FAST


def test_clocks_that_differ_by_more_than_5_percent_are_said() -> None:
    record = with_clocks({Phase.PREFILL: [SLOW] * 3, Phase.DECODE: [1.72e9] * 3}, read_at_hz=FAST)
    said = [one for one in build_report(record).caveats if one.code == "clock-differs"]
    assert [one.phase for one in said] == [Phase.PREFILL]
    assert "1.35 GHz" in said[0].message
    assert "75 %" in said[0].message
