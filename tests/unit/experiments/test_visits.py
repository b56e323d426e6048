from datetime import timedelta

import pytest

from llmprof.analysis.rates import distinct_readings
from llmprof.experiments.visits import joined, visit_settings
from llmprof.schema.settings import RunConfig
from tests.records import a_run_record


def test_the_rounds_are_shared_out_and_none_is_lost() -> None:
    config = RunConfig.model_validate({"model": "m", "measure": {"rounds": 8}})
    assert [visit_settings(config, n).measure.rounds for n in (1, 2, 3, 8, 20)] == [8, 4, 3, 1, 1]


def test_joined_rounds_follow_each_other_on_one_clock() -> None:
    first = a_run_record(rounds=2, seed=1)
    second = a_run_record(rounds=3, seed=2)
    second = second.model_copy(update={"created": first.created + timedelta(seconds=1000)})
    whole = joined([first, second])
    assert [one.index for one in whole.rounds] == [0, 1, 2, 3, 4]
    assert whole.rounds[:2] == first.rounds
    assert whole.rounds[2].steps[0].start_s == pytest.approx(
        1000 + second.rounds[0].steps[0].start_s
    )
    assert whole.rounds[2].steps[0].duration_s == second.rounds[0].steps[0].duration_s
    # Two visits' readings are not taken for one because they were taken at the same time of each.
    assert len(distinct_readings(whole.rounds)) == 3 + 4
    assert len(whole.grouped) == 5
    assert whole.caveats == first.caveats


def test_one_visit_is_the_run_itself() -> None:
    record = a_run_record()
    assert joined([record]) is record


def test_visits_that_give_other_tokens_are_told() -> None:
    first = a_run_record()
    other = first.model_copy(update={"output_sha256": "another"})
    assert [c.code for c in joined([first, other]).caveats] == ["outputs-differ"]
