import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from llmprof.architectures.config_json import parse_config
from llmprof.engine.rope import RotaryTable, attention_factor, frequencies, rotate_
from llmprof.errors import CapabilityError
from llmprof.schema.model import ModelConfig, RopeScaling
from tests.model_files import tiny_config

KNOWN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "rotary_frequencies.json").read_text()
)["frequencies"]


def model(**changes: object) -> ModelConfig:
    return parse_config(tiny_config(**changes), name="tiny")


@pytest.mark.parametrize("name", KNOWN)
def test_frequencies_of_another_implementation(name: str) -> None:
    known = KNOWN[name]
    found = model(**known["config"])
    torch.testing.assert_close(
        frequencies(found)[known["pairs"]],
        torch.tensor(known["radians_per_position"]),
        atol=0,
        rtol=2e-6,
    )
    assert attention_factor(found) == pytest.approx(known["attention_factor"])


def test_plain_frequencies() -> None:
    expected = [1.0, 10_000 ** (-2 / 8), 10_000 ** (-4 / 8), 10_000 ** (-6 / 8)]
    torch.testing.assert_close(frequencies(model()), torch.tensor(expected))


def test_each_pair_turns_like_a_complex_number() -> None:
    rotated = torch.randn(5, 3, 8, generator=torch.Generator().manual_seed(1))
    before = rotated.clone()
    table = RotaryTable.of(model(), 12, torch.float32, "cpu")
    rotate_(rotated, *table.at(torch.arange(7, 12)))
    for token in range(5):
        for pair in range(4):
            angle = (7 + token) * 10_000 ** (-2 * pair / 8)
            turn = complex(math.cos(angle), math.sin(angle))
            for head in (0, 2):
                old, new = before[token, head], rotated[token, head]
                expected = complex(old[pair], old[pair + 4]) * turn
                assert float(new[pair]) == pytest.approx(expected.real, abs=2e-6)
                assert float(new[pair + 4]) == pytest.approx(expected.imag, abs=2e-6)


def test_only_the_first_channels_turn_and_only_they_are_scaled() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    half = model(rope_scaling=yarn).model_copy(update={"rotary_share": 0.5})
    heads = torch.ones(1, 2, 8)
    rotate_(heads, *RotaryTable.of(half, 2, torch.float32, "cpu").at(torch.tensor([0])))
    expected = torch.tensor([1 + 0.1 * math.log(4)] * 4 + [1.0] * 4)
    torch.testing.assert_close(heads, expected.expand(1, 2, 8))


def test_yarn_stretches_the_rotated_vectors() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    table = RotaryTable.of(model(rope_scaling=yarn), 2, torch.float32, "cpu")
    heads = torch.ones(1, 1, 8)
    rotate_(heads, *table.at(torch.tensor([0])))
    torch.testing.assert_close(heads, torch.full_like(heads, 1 + 0.1 * math.log(4)))


def test_llama3_without_its_context_is_refused() -> None:
    scaling = RopeScaling(kind="llama3", factor=8, low_freq_factor=1, high_freq_factor=4)
    incomplete = model().model_copy(update={"rope_scaling": scaling})
    with pytest.raises(CapabilityError, match="original_max_position_embeddings"):
        frequencies(incomplete)


def test_tables_are_the_same_in_every_process() -> None:
    """Rounded once from double precision: no choice of a library's is left in them."""
    table = RotaryTable.of(model(), 300, torch.float32, "cpu").tables.squeeze(2)
    turns = frequencies(model())
    angles = torch.outer(torch.arange(300, dtype=torch.float32), turns).flatten().tolist()
    half = len(turns)
    for nth, function in ((0, math.cos), (1, math.sin)):
        exact = torch.tensor([function(angle) for angle in angles], dtype=torch.float64).float()
        assert torch.equal(table[nth][:, half:].flatten(), exact)
