"""Windows and experts of config.json: what is left out is the class's default, or is refused."""

from typing import Any

import pytest

from llmprof.architectures.config_json import parse_config
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.model import ModelConfig
from tests.model_files import tiny_config

QWEN2: dict[str, Any] = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
MISTRAL: dict[str, Any] = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}


def parse(**changes: object) -> ModelConfig:
    return parse_config(tiny_config(**changes), name="tiny", where="a/config.json")


@pytest.mark.parametrize(
    "changes",
    [
        QWEN2 | {"use_sliding_window": False, "sliding_window": 64},
        QWEN2 | {"sliding_window": 64},
        QWEN2 | {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 2},
        MISTRAL | {"sliding_window": None},
        MISTRAL | {"sliding_window": -1},
        MISTRAL | {"sliding_window": 0},
        MISTRAL | {"sliding_window": 128},
        MISTRAL | {"sliding_window": 64, "layer_types": ["full_attention"] * 2},
        MISTRAL,
    ],
)
def test_a_window_that_is_off_is_full_attention(changes: dict[str, object]) -> None:
    assert windows(**changes) == [None, None]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (MISTRAL | {"sliding_window": 64}, [64, 64]),
        (
            QWEN2 | {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1},
            [None, 64],
        ),
        (
            MISTRAL
            | {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]},
            [64, None],
        ),
    ],
)
def test_a_window_that_is_on(changes: dict[str, object], expected: list[int | None]) -> None:
    assert windows(**changes) == expected


def windows(**changes: object) -> list[int | None]:
    layers = parse(**changes).layers
    return [one.attention.window for one in layers if one.attention.kind == "softmax"]


def test_a_window_that_starts_nowhere_is_not_guessed() -> None:
    with pytest.raises(InputError, match="max_window_layers"):
        parse(**QWEN2, use_sliding_window=True, sliding_window=64)


def test_a_window_that_is_left_out_is_the_one_of_the_familys_configuration_class() -> None:
    """transformers takes 4,096 for a Mistral, which only null switches off; 128 for gpt-oss."""
    assert windows(**MISTRAL, max_position_embeddings=8192) == [4096, 4096]
    assert windows(**MISTRAL, max_position_embeddings=8192, sliding_window=None) == [None, None]
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}
    gpt_oss = {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], **experts}
    assert windows(**gpt_oss, max_position_embeddings=4096) == [128, None]


def test_a_window_that_is_switched_on_without_a_size_is_not_guessed() -> None:
    with pytest.raises(InputError, match="'sliding_window' is missing"):
        parse(**QWEN2, use_sliding_window=True, max_window_layers=0)
    assert windows(**QWEN2, use_sliding_window=True, sliding_window=None) == [None, None]


QWEN2_MOE: dict[str, Any] = {
    "model_type": "qwen2_moe",
    "architectures": ["Qwen2MoeForCausalLM"],
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24,
}
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "q_lora_rank": None,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}


def test_which_layers_of_a_qwen_with_experts_slide_is_not_guessed() -> None:
    """transformers alternates in one family and lets every layer of the other slide."""
    on = {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}
    with pytest.raises(CapabilityError, match="which layers of a qwen2_moe model slide"):
        parse(**QWEN2_MOE, **on)
    types = ["sliding_attention", "full_attention"]
    assert windows(**QWEN2_MOE, **on, layer_types=types) == [64, None]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (QWEN2_MOE, "shared_expert_intermediate_size"),
        (QWEN2_MOE | {"mlp_only_layers": [0]}, "intermediate_size"),
        (DEEPSEEK, "n_shared_experts"),
        (DEEPSEEK, "first_k_dense_replace"),
    ],
)
def test_sizes_of_experts_that_are_left_out_are_not_taken_for_none(
    config: dict[str, Any], field: str
) -> None:
    """Their defaults are no zeros, and differ between transformers and the models' own code."""
    parse(**config)
    with pytest.raises(InputError, match=f"'{field}' is missing"):
        parse(**(config | {field: ...}))
