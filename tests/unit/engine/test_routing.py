"""Which experts tokens pass where a setting decides."""

import json
import math
from pathlib import Path

import pytest
import torch

from llmprof.architectures.config_json import parse_config
from llmprof.engine.routing import make_choice
from llmprof.engine.step_batch import StepBatch
from llmprof.errors import InputError
from llmprof.schema.settings import RoutingSettings
from tests.tiny_decoders import DECODERS

MODEL = parse_config(next(one.config for one in DECODERS if one.name == "qwen3_moe"), name="moe")
"""8 experts, 3 for each token, in layers 0 and 2."""


def chosen(tokens: int, layer: int = 0, **settings: object) -> torch.Tensor:
    choice = make_choice(MODEL, RoutingSettings.model_validate(settings), "cpu")
    nothing = torch.empty(0, dtype=torch.int32)
    ids = torch.arange(tokens)
    choice.begin_step(StepBatch(ids, ids.int(), nothing, nothing, nothing, ()))
    return choice(torch.full((tokens, 8), 1 / 8), 3, layer)


def shares(ids: torch.Tensor) -> list[float]:
    """Of the choices that fell on each expert, the most popular first."""
    counts = torch.bincount(ids.flatten(), minlength=8).double()
    return (counts / counts.sum()).sort(descending=True).values.tolist()


def test_uniform_choices_fall_on_all_experts_alike() -> None:
    ids = chosen(8000, kind="uniform")
    assert all(len(set(row)) == 3 for row in ids.tolist())
    # 24,000 choices: a share of 1/8 has a standard error of 0.002
    assert all(abs(share - 1 / 8) < 0.01 for share in shares(ids))


def test_zipf_draws_one_after_the_other_by_popularity() -> None:
    ids = chosen(8000, kind="zipf", zipf_exponent=1.5)
    weights = [rank**-1.5 for rank in range(1, 9)]
    first = torch.bincount(ids[:, 0], minlength=8).double().sort(descending=True).values / 8000
    expected = torch.tensor([weight / math.fsum(weights) for weight in weights]).double()
    torch.testing.assert_close(first, expected, atol=0.03, rtol=0)
    assert not torch.equal(ids, chosen(8000, layer=2, kind="zipf", zipf_exponent=1.5))


def test_the_same_tokens_choose_the_same_experts_again() -> None:
    assert torch.equal(chosen(50, kind="uniform"), chosen(50, kind="uniform"))


def test_a_recorded_routing(tmp_path: Path) -> None:
    path = tmp_path / "routing.jsonl"
    path.write_text("\n".join(map(json.dumps, [[[0, 1, 2], [5, 6, 7]], [[2, 3, 4], [1, 0, 7]]])))
    found = chosen(40, layer=2, kind="recorded", file=str(path))
    assert {tuple(row) for row in found.tolist()} == {(5, 6, 7), (1, 0, 7)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "holds no routing"),
        ("[[0, 1, 2]]", "each of the 2 expert layers"),
        ("[[0, 1, 2], [0, 1, 8]]", "from 0 to 7"),
        ("[[0, 1, 1], [0, 1, 2]]", "3 different experts"),
        ("{", "cannot read the routing"),
    ],
)
def test_a_routing_of_another_model(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "routing.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=problem):
        chosen(1, kind="recorded", file=str(path))
