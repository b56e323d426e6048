import pytest

from llmprof.experiments.output_tokens import OutputTokens, compare_outputs
from llmprof.schema.settings import WorkloadSettings

WORK = WorkloadSettings(batch=2, output_tokens=4)


def written(*ids: tuple[int, ...]) -> OutputTokens:
    return OutputTokens(WORK, ids)


@pytest.mark.parametrize(
    ("other", "same", "equal", "first"),
    [
        (((1, 2, 3, 4), (5, 6, 7, 8)), True, 8, None),
        (((1, 2, 3, 9), (5, 0, 0, 0)), False, 4, 2),  # the second sequence leaves at its second
        (((9, 2, 3, 4), (5, 6, 7, 8)), False, 7, 1),
    ],
)
def test_the_first_token_that_differs_in_any_sequence(
    other: tuple[tuple[int, ...], ...], same: bool, equal: int, first: int | None
) -> None:
    found = compare_outputs(written((1, 2, 3, 4), (5, 6, 7, 8)), written(*other))
    assert (found.same, found.equal_tokens, found.tokens) == (same, equal, 8)
    assert found.first_difference == first


def test_other_prompts_have_other_answers() -> None:
    other = OutputTokens(WORK.model_copy(update={"seed": 1}), ((1,),))
    found = compare_outputs(written((1,)), other)
    assert found.same is None
    assert found.reason == "workload.seed differ: other tokens were asked for"


def test_served_requests_keep_none() -> None:
    assert compare_outputs(written((1,)), OutputTokens(WORK, None)).same is None
