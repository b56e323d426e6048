"""Bounds of forecasts, with a pencil."""

import pytest

from llmprof.analysis.spans import Span, added, ratio_of, together


def test_independent_errors_add_by_their_squares_and_one_error_as_it_is() -> None:
    one, other = Span(10.0, 7.0, 14.0), Span(20.0, 16.0, 23.0)
    assert added([one, other]) == Span(30.0, 25.0, 35.0)  # 3 and 4 below, 4 and 3 above
    assert together([one, other]) == Span(30.0, 23.0, 37.0)


def test_a_further_error_is_as_many_times_less_as_more() -> None:
    """A quarter more is a fifth less: 25 above 100 and 20 below."""
    assert Span.exactly(100.0).widened(0.25) == Span(100.0, 80.0, 125.0)
    wider = Span(100.0, 85.0, 160.0).widened(0.25)
    assert (wider.low, wider.high) == (75.0, 165.0)  # 15 and 20 below, 60 and 25 above


def test_what_is_sure_over_a_forecast_turns_its_bounds_around() -> None:
    found = ratio_of(60.0, Span(20.0, 15.0, 30.0))
    assert (found.point, found.low, found.high) == (3.0, 2.0, 4.0)
    assert ratio_of(60.0, Span(20.0, 0.0, 30.0)).high == pytest.approx(3000.0)
