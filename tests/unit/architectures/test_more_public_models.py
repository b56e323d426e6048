"""Published configurations with all their keys, nulls and older or newer spellings."""

import json
from pathlib import Path
from typing import Any

import pytest

from llmprof.architectures.config_json import parse_config
from llmprof.architectures.manifest import expected_buffers
from llmprof.architectures.presets import preset_config
from llmprof.costs.kv_cache import kv_bytes_per_token
from llmprof.costs.parameters import count_parameters

MODELS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "more_public_models.json").read_text()
)["models"]


@pytest.mark.parametrize("known", MODELS, ids=lambda known: known["name"])
def test_parameters_and_cache_are_exact(known: dict[str, Any]) -> None:
    model = parse_config(known["config"], name=known["name"])
    assert count_parameters(model).total == known["parameters"]
    assert kv_bytes_per_token(model, 2.0) == known["kv_bytes_per_token"]


def test_image_encoders_make_up_the_rest_of_the_published_total() -> None:
    """Totals of the safetensors headers: 4,300,079,472 and 12,187,325,040."""
    for preset, published in (("gemma-3-4b", 4_300_079_472), ("gemma-3-12b", 12_187_325_040)):
        count = count_parameters(preset_config(preset))
        assert count.vision is not None
        assert count.total + count.vision == published


def test_a_head_that_the_file_stores_again_is_the_table_all_the_same() -> None:
    """falcon-7b: its files hold `lm_head.weight`, 7,217,189,760 numbers in all."""
    falcon = preset_config("falcon-7b")
    assert falcon.tie_word_embeddings
    assert count_parameters(falcon).total + 65_024 * 4544 == 7_217_189_760


def test_the_corrections_of_routers_are_buffers() -> None:
    """deepseek-v3: 58 layers x 256 numbers in its files, 671,026,419,200 with them."""
    deepseek = preset_config("deepseek-v3")
    corrections = sum(size for (size,) in expected_buffers(deepseek).values())
    assert corrections == 14_848
    assert count_parameters(deepseek).total + corrections == 671_026_419_200


def test_the_newest_spelling_of_rotary_settings_is_the_old_one() -> None:
    newer = next(one for one in MODELS if "transformers 5" in one["name"])
    model, preset = parse_config(newer["config"], name="newer"), preset_config("llama-3.2-3b")
    assert model.rope_theta == preset.rope_theta == 500_000
    assert model.rope_scaling == preset.rope_scaling
    assert model.torch_dtype == "bf16"
