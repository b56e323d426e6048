import pytest

from llmprof.analysis.limits import (
    answers,
    class_of,
    is_firm,
    saturation_is_firm,
    saturation_of,
    what_limits,
)
from llmprof.schema.measurement import Estimate
from llmprof.schema.verdict import Limit, LimitShare, Saturation


def _share(limit: Limit, low: float, point: float, high: float, samples: int = 8) -> LimitShare:
    confidence = 1 - 2 / 2**samples
    share = Estimate(point=point, low=low, high=high, confidence=confidence, num_samples=samples)
    return LimitShare(limit=limit, share=share)


def test_one_answer_over_both_intervals_is_firm() -> None:
    shares = (_share(Limit.MEMORY, 0.75, 0.80, 0.85), _share(Limit.HOST, 0.15, 0.20, 0.25))
    assert answers(shares) == {Limit.MEMORY}
    assert is_firm(shares)


def test_an_interval_that_reaches_a_mixture_is_not_firm() -> None:
    shares = (_share(Limit.MEMORY, 0.55, 0.62, 0.70), _share(Limit.HOST, 0.30, 0.38, 0.45))
    assert answers(shares) == {Limit.MEMORY, Limit.MIXTURE}
    assert not is_firm(shares)


@pytest.mark.parametrize(("samples", "firm"), [(1, False), (2, True)])
def test_the_point_of_a_single_round_is_never_firm(samples: int, firm: bool) -> None:
    """Its interval is as narrow as can be and covers nothing; that of two covers 50 %."""
    shares = (
        _share(Limit.MEMORY, 0.9, 0.9, 0.9, samples),
        _share(Limit.HOST, 0.1, 0.1, 0.1, samples),
    )
    assert is_firm(shares) is firm
    assert saturation_is_firm(shares[0].share) is firm


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        (0.60, 0.40, Limit.MEMORY),  # it dominates
        (0.59, 0.30, Limit.MIXTURE),
        (0.59, 0.29, Limit.MEMORY),  # the second is no rival
    ],
)
def test_a_mixture_is_a_first_below_sixty_and_a_second_of_thirty_per_cent(
    first: float, second: float, answer: Limit
) -> None:
    shares = (_share(Limit.MEMORY, first, first, first), _share(Limit.HOST, second, second, second))
    assert what_limits(shares) is answer


@pytest.mark.parametrize(
    ("fraction", "word"),
    [
        (0.80, Saturation.SATURATED),
        (0.799, Saturation.UNSATURATED),
        (0.60, Saturation.UNSATURATED),
        (0.599, Saturation.KERNEL_LIMITED),
    ],
)
def test_classes_of_saturation_begin_at_sixty_and_eighty_per_cent(
    fraction: float, word: Saturation
) -> None:
    assert class_of(fraction) is word


def test_an_interval_over_all_three_classes_has_none() -> None:
    def of(low: float, high: float) -> Saturation:
        return saturation_of(_share(Limit.MEMORY, low, 0.7, high).share)

    assert of(0.59, 0.80) is Saturation.UNKNOWN
    assert of(0.60, 0.80) is of(0.59, 0.79) is Saturation.UNSATURATED
    assert saturation_of(None) is Saturation.UNKNOWN
