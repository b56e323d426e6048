"""What the instruments cost a step, from a record whose costs the test sets."""

import pytest

from llmprof.analysis.report import build_report
from llmprof.renderers.run_text import run_text
from llmprof.schema.cost import Phase
from llmprof.schema.report import Report
from llmprof.schema.run import OwnCost
from tests.records import a_run_record


def report(**update: object) -> Report:
    own = OwnCost(
        probe_calls_per_step=300,
        seconds_per_probe_call=0.4e-6,
        seconds_per_empty_call=0.1e-6,
        seconds_per_step=2e-6,
        sampler_cpu_s=0.0,
    )
    record = a_run_record(noise=0.0)
    return build_report(record.model_copy(update={"own_cost": own.model_copy(update=update)}))


def test_calls_times_cost_over_a_decode_step() -> None:
    found = report()
    own = found.own_cost
    assert own is not None
    decode = next(one for one in found.phases if one.phase is Phase.DECODE)
    assert own.phase is Phase.DECODE
    assert own.clean_s == pytest.approx(2e-6 + 300 * 0.1e-6)
    assert own.clean_fraction == pytest.approx(32e-6 / decode.step_s.point)
    assert own.grouped_s == pytest.approx(120e-6)
    assert "own-cost" not in {caveat.code for caveat in found.caveats}
    assert "own cost 0.2" in run_text(found, 140)


def test_sensors_are_shared_among_the_steps() -> None:
    """Eight rounds of a prefill and eight decodes are 72 steps."""
    own = report(sampler_cpu_s=0.072).own_cost
    assert own is not None
    assert own.clean_s == pytest.approx(32e-6 + 1e-3)


def test_more_than_a_hundredth_is_a_caveat() -> None:
    caveat = next(one for one in report(sampler_cpu_s=0.072).caveats if one.code == "own-cost")
    assert "1.03 ms" in caveat.message
