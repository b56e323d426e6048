from hypothesis import given
from hypothesis import strategies as st

from llmprof.analysis.spans import Span, added

SIZES = st.floats(min_value=1e-6, max_value=1e3)
SHARES = st.floats(min_value=0.0, max_value=0.99)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    point = draw(SIZES)
    return Span(point, point * (1 - draw(SHARES)), point * (1 + draw(SHARES)))


@given(st.lists(spans(), min_size=1, max_size=8))
def test_a_sum_of_times_stays_a_time_and_is_narrower_than_the_sum_of_the_ends(
    parts: list[Span],
) -> None:
    whole = added(parts)
    assert 0 <= whole.low <= whole.point <= whole.high
    assert whole.low >= sum(one.low for one in parts) * (1 - 1e-9) - 1e-9
    assert whole.high <= sum(one.high for one in parts) * (1 + 1e-9) + 1e-9


@given(spans(), st.floats(min_value=0.0, max_value=10.0))
def test_widening_keeps_the_point_and_never_reaches_zero(one: Span, relative: float) -> None:
    wider = one.widened(relative)
    assert wider.point == one.point
    assert 0 <= wider.low <= one.low * (1 + 1e-12)
    assert wider.high >= one.high
