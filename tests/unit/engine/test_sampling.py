import pytest
import torch

from llmprof.engine.sampling import MIN_TEMPERATURE, SamplingOptions, make_sampler
from llmprof.errors import InputError

PROBABILITIES = [0.05, 0.4, 0.25, 0.2, 0.1]
LOGITS = torch.log(torch.tensor([PROBABILITIES]))


def draws(options: SamplingOptions, number: int = 4000) -> torch.Tensor:
    """Ids drawn by as many sequences with the same logits."""
    ids = torch.zeros(number, 1, dtype=torch.long)
    make_sampler(options, "cpu")(LOGITS.expand(number, -1), ids)
    return ids[:, 0]


def found(options: SamplingOptions) -> set[int]:
    return set(draws(options).tolist())


def test_greedy_writes_the_most_probable_id_where_it_is_told_to() -> None:
    room = torch.full((2, 3), -1)
    logits = torch.cat((LOGITS, -LOGITS))
    make_sampler(SamplingOptions(), "cpu")(logits, room[:, 1:2])
    assert room.tolist() == [[-1, 1, -1], [-1, 0, -1]]


def test_frequencies_follow_the_temperature() -> None:
    ids = draws(SamplingOptions(temperature=0.5), 20_000)
    squares = [p * p for p in PROBABILITIES]
    for token, square in enumerate(squares):
        share = float((ids == token).float().mean())
        assert share == pytest.approx(square / sum(squares), abs=0.02)


def test_the_coldest_draw_takes_the_most_probable() -> None:
    assert found(SamplingOptions(temperature=MIN_TEMPERATURE)) == {1}


def test_top_k() -> None:
    assert found(SamplingOptions(temperature=2.0, top_k=2)) == {1, 2}
    assert found(SamplingOptions(temperature=2.0, top_k=99)) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(("top_p", "kept"), [(0.3, {1}), (0.5, {1, 2}), (0.8, {1, 2, 3})])
def test_nucleus_is_the_fewest_ids_that_hold_the_share(top_p: float, kept: set[int]) -> None:
    assert found(SamplingOptions(temperature=1.0, top_p=top_p)) == kept


def test_nucleus_is_taken_of_what_top_k_leaves() -> None:
    # 0.4 of 0.65 is more than half
    assert found(SamplingOptions(temperature=1.0, top_k=2, top_p=0.5)) == {1}


def test_the_seed_decides() -> None:
    first, again, other = (draws(SamplingOptions(1.0, seed=seed), 50) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": 1e-40}, "temperature is 1e-40, less than 1e-06"),
        ({"temperature": 1.0, "top_p": 0.0}, "top-p"),
        ({"temperature": 1.0, "top_p": 1.5}, "top-p"),
        ({"top_k": 3}, "temperature 0"),
        ({"top_p": 0.5}, "temperature 0"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SamplingOptions(**options)  # type: ignore[arg-type]
