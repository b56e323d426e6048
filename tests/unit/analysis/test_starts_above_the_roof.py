"""What a start is said to have taken leaves a kernel the time of its bytes."""

from llmprof.analysis.group_forecast import Forecast
from llmprof.analysis.host_forecast import above_roof
from llmprof.analysis.spans import Span


def test_a_kernel_without_its_starts_still_moves_its_bytes() -> None:
    before = Forecast(Span(2.9, 2.5, 3.2), "as it is", is_measured=True)
    started = Forecast(Span(0.0, 0.0, 1.4), "replayed", is_measured=True)
    found = above_roof(started, before, 2.1)
    assert found.span == Span(2.1, 2.1, 2.1)
    assert found.basis == "replayed"


def test_a_kernel_that_was_above_its_roof_by_nothing_stays_where_it_was() -> None:
    """Weights in a cache are read faster than the ceiling says."""
    before = Forecast(Span(1.5, 1.2, 2.4), "as it is", is_measured=True)
    started = Forecast(Span(1.0, 0.5, 2.2), "replayed", is_measured=True)
    assert above_roof(started, before, 2.1).span == Span(1.5, 1.2, 2.2)
