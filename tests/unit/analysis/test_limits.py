import pytest

from llmprof.analysis.limits import answers, is_firm, saturation_is_firm
from llmprof.schema.measurement import Estimate
from llmprof.schema.verdict import Limit, LimitShare


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
