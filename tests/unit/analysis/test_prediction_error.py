import dataclasses

import pytest

from llmprof.analysis.prediction_error import PredictedCase, cover, median_half_width, score

CASE = PredictedCase(
    model="m",
    change="c",
    phase="decode",
    tier="C",
    predicted=0.5,
    low=0.45,
    high=0.6,
    measured=0.4,
    measured_low=0.39,
    measured_high=0.41,
    byte_ratio=0.25,
    roofline=0.3,
    tier_b=None,
    tier_a=0.4,
    disturbed_rounds=0,
    pairs=7,
)


def test_errors_are_relative_to_what_was_measured() -> None:
    good = dataclasses.replace(CASE, measured=0.5)
    found = score((CASE, good), lambda one: one.predicted)
    assert found.cases == 2
    assert found.worst_error == pytest.approx(0.25)
    assert found.median_error == pytest.approx(0.125)


def test_cover_and_width() -> None:
    inside = dataclasses.replace(CASE, measured=0.6)
    assert cover((CASE, inside)) == 0.5
    assert median_half_width((CASE,)) == pytest.approx(0.15)


def test_a_forecast_that_no_case_has() -> None:
    with pytest.raises(ValueError, match="no case"):
        score((CASE,), lambda one: one.tier_b)
