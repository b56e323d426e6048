"""config.json in every spelling in use, and what must be refused."""

from typing import Any

import pytest

from llmprof.architectures.config_json import parse_config
from llmprof.architectures.manifest import expected_tensors
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.model import ModelConfig, RopeScaling
from tests.model_files import tiny_config

QWEN2: dict[str, Any] = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
QWEN3: dict[str, Any] = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
MISTRAL: dict[str, Any] = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def parse(**changes: object) -> ModelConfig:
    return parse_config(tiny_config(**changes), name="tiny", where="a/config.json")


def test_shape() -> None:
    config = parse(bos_token_id=1, eos_token_id=[2, 7])
    assert config.num_hidden_layers == 2
    assert (config.query_size, config.kv_size, config.head_dim) == (32, 16, 8)
    assert config.torch_dtype == "fp32"
    assert (config.bos_token_id, config.eos_token_ids) == (1, (2, 7))
    assert not any((config.attention_bias, config.output_bias, config.mlp_bias, config.qk_norm))


@pytest.mark.parametrize("spelling", [{}, {"num_key_value_heads": None}])
def test_heads_of_their_own_where_the_field_is_left_out(spelling: dict[str, object]) -> None:
    config = tiny_config(num_key_value_heads=...) | spelling
    assert parse_config(config, name="tiny").num_key_value_heads == 4


def test_only_llama_may_leave_out_the_key_value_heads() -> None:
    with pytest.raises(InputError, match="num_key_value_heads"):
        parse(num_key_value_heads=..., **MISTRAL)


def test_explicit_head_dim_wins_over_the_quotient() -> None:
    config = parse(hidden_size=5120, num_attention_heads=32, head_dim=128, **MISTRAL)
    assert config.head_dim == 128
    assert config.query_size == 4096


def test_families() -> None:
    assert parse(**QWEN2).attention_bias
    assert not parse(**QWEN2).output_bias
    assert parse(head_dim=8, **QWEN3).qk_norm
    llama = parse(attention_bias=True, mlp_bias=True)
    assert llama.attention_bias
    assert llama.output_bias
    assert llama.mlp_bias


def test_qwen3_must_state_its_head_dim() -> None:
    with pytest.raises(InputError, match="head_dim"):
        parse(**QWEN3)


@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_llama3_scaling(key: str) -> None:
    config = parse(rope_scaling=LLAMA3 | {key: "llama3"}, max_position_embeddings=131072)
    assert config.rope_scaling == RopeScaling(
        kind="llama3",
        factor=8,
        low_freq_factor=1,
        high_freq_factor=4,
        original_max_position_embeddings=8192,
    )
    # the stated context already holds the factor
    assert config.max_position_embeddings == 131072


def test_newer_spelling_of_the_rotation() -> None:
    config = parse(
        rope_theta=..., rope_parameters={"rope_type": "linear", "factor": 2, "rope_theta": 5e5}
    )
    assert config.rope_theta == 5e5
    assert config.rope_scaling == RopeScaling(kind="linear", factor=2)
    plain = parse(rope_theta=..., rope_parameters={"rope_type": "default", "rope_theta": 77})
    assert (plain.rope_theta, plain.rope_scaling) == (77, None)


def test_yarn() -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    assert parse(rope_scaling=scaling, **QWEN2).rope_scaling == RopeScaling(
        kind="yarn", factor=4, original_max_position_embeddings=32768
    )
    tuned = {"rope_type": "yarn", "factor": 4, "beta_fast": 24, "attention_factor": 0.8}
    assert parse(rope_scaling=tuned).rope_scaling == RopeScaling(
        kind="yarn",
        factor=4,
        beta_fast=24,
        attention_factor=0.8,
        original_max_position_embeddings=128,
    )


def test_rotations_that_are_described_and_not_run() -> None:
    untruncated = parse(rope_scaling={"rope_type": "yarn", "factor": 2.0, "truncate": False})
    assert untruncated.rope_scaling is not None
    assert not untruncated.rope_scaling.truncate
    dynamic = parse(rope_scaling={"rope_type": "dynamic", "factor": 2.0}).rope_scaling
    assert dynamic == RopeScaling(kind="dynamic", factor=2)
    long = {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}
    found = parse(rope_scaling=long, original_max_position_embeddings=32)
    assert found.rope_scaling == RopeScaling(
        kind="longrope",
        factor=4,
        original_max_position_embeddings=32,
        short_factors=(1.0,),
        long_factors=(2.0,),
    )
    assert found.max_position_embeddings == 128


def test_unsupported_rotation() -> None:
    with pytest.raises(CapabilityError, match="'spiral'"):
        parse(rope_scaling={"type": "spiral", "factor": 4.0})


@pytest.mark.parametrize(
    "scaling",
    [
        {"type": "linear"},
        {"type": "linear", "factor": 0.5},
        LLAMA3 | {"type": "llama3", "high_freq_factor": 1.0},
        {"factor": 2.0},
        {"type": 3, "factor": 2.0},
        "linear",
    ],
)
def test_malformed_rotation(scaling: object) -> None:
    with pytest.raises(InputError, match="rope_scaling"):
        parse(rope_scaling=scaling)


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({"torch_dtype": "torch.float16"}, "fp16"),
        ({"torch_dtype": ..., "dtype": "float32"}, "fp32"),
        ({"torch_dtype": ...}, None),
    ],
)
def test_dtype(changes: dict[str, object], dtype: str | None) -> None:
    assert parse(**changes).torch_dtype == dtype


@pytest.mark.parametrize(
    ("model_type", "architecture"),
    [
        ("llama4", "Llama4ForConditionalGeneration"),
        ("mistral3", "Mistral3ForConditionalGeneration"),
        ("llava", "LlavaForConditionalGeneration"),
        ("qwen2_vl", "Qwen2VLForConditionalGeneration"),
        ("jamba", "JambaForCausalLM"),
        ("mamba2", "Mamba2ForCausalLM"),
        ("bamba", "BambaForCausalLM"),
        ("nemotron_h", "NemotronHForCausalLM"),
        ("granitemoehybrid", "GraniteMoeHybridForCausalLM"),
        ("deepseek_v32", "DeepseekV32ForCausalLM"),
        ("phimoe", "PhimoeForCausalLM"),
        ("gemma", "GemmaForCausalLM"),
    ],
)
def test_layers_that_are_not_known_are_refused_in_one_line(
    model_type: str, architecture: str
) -> None:
    with pytest.raises(CapabilityError, match=f"'{model_type}' is not supported") as refused:
        parse(model_type=model_type, architectures=[architecture])
    assert "\n" not in refused.value.line()


@pytest.mark.parametrize("model_type", ["smollm3", "glm4_moe", "kimi_k2", "llama4_text"])
def test_an_unknown_family_is_never_guessed(model_type: str) -> None:
    with pytest.raises(CapabilityError) as refused:
        parse(model_type=model_type)
    assert f"'{model_type}'" in refused.value.message
    assert "llama, mistral, qwen2, qwen3" in refused.value.message
    assert refused.value.exit_code == 7


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ["LlamaForSequenceClassification"]},
        {"kv_lora_rank": 512},
        {"num_experts": 8},
        {"hidden_act": "gelu"},
        {"partial_rotary_factor": 0.5},
        {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}},
        {"layer_types": ["linear_attention", "full_attention"]},
        {"torch_dtype": "float8_e4m3fn"},
        {"per_layer_config": {"0": {"head_dim": 16}}},
    ],
)
def test_variations_that_compute_something_else(changes: dict[str, object]) -> None:
    with pytest.raises(CapabilityError, match=r"a/config\.json"):
        parse(**changes)


GLM: dict[str, object] = {"model_type": "glm4", "architectures": ["Glm4ForCausalLM"], "head_dim": 8}


def test_glm_biases_are_on_queries_keys_and_values_alone() -> None:
    assert "model.layers.0.self_attn.q_proj.bias" in expected_tensors(parse(**GLM))
    assert "model.layers.0.self_attn.o_proj.bias" not in expected_tensors(parse(**GLM))
    unbiased = expected_tensors(parse(**GLM, attention_bias=False))
    assert not [name for name in unbiased if name.endswith(".bias")]


def test_glm_norms_and_rotation() -> None:
    model = parse(**GLM)
    names = [name for name in expected_tensors(model) if "layers.1." in name and "norm" in name]
    assert [name.split(".")[3] for name in names] == [
        "input_layernorm",
        "post_self_attn_layernorm",
        "post_attention_layernorm",
        "post_mlp_layernorm",
    ]
    assert (model.rotary_share, model.rotary_dim) == (0.5, 4)
    assert parse(**GLM, partial_rotary_factor=1).rotary_dim == 8
    with pytest.raises(InputError, match="partial_rotary_factor"):
        parse(**GLM, partial_rotary_factor=2.0)


def test_an_unknown_packing_is_never_guessed() -> None:
    with pytest.raises(CapabilityError, match="'aqlm'"):
        parse(quantization_config={"quant_method": "aqlm", "bits": 2})


def test_a_config_with_parts_is_no_llama() -> None:
    with pytest.raises(CapabilityError, match="'text_config'"):
        parse(text_config={"hidden_size": 32})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_hidden_layers", ...),
        ("num_hidden_layers", -3),
        ("num_hidden_layers", 0),
        ("num_hidden_layers", 10**12),
        ("num_hidden_layers", 10**400),
        ("num_hidden_layers", 2.5),
        ("num_hidden_layers", 2.0),
        ("num_hidden_layers", "2"),
        ("num_hidden_layers", True),
        ("num_hidden_layers", None),
        ("hidden_size", ...),
        ("hidden_size", 33),
        ("intermediate_size", -1),
        ("num_attention_heads", [4]),
        ("num_key_value_heads", 3),
        ("vocab_size", 1e40),
        ("max_position_embeddings", ...),
        ("rms_norm_eps", 0),
        ("rms_norm_eps", float("nan")),
        ("rope_theta", float("inf")),
        ("rope_theta", 10**400),
        ("head_dim", 7),
        ("tie_word_embeddings", "no"),
        ("model_type", ...),
        ("model_type", 3),
        ("eos_token_id", -2),
        ("eos_token_id", [1, "2"]),
        ("sliding_window", "wide"),
        ("architectures", "MambaForCausalLM"),
        ("architectures", [3]),
        ("layer_types", "full_attention"),
        ("layer_types", {"0": "full_attention"}),
        ("layer_types", ["full_attention"]),
    ],
)
def test_a_bad_field_is_named_in_one_line(field: str, value: object) -> None:
    with pytest.raises(InputError) as refused:
        parse(**({**MISTRAL, field: value} if field == "sliding_window" else {field: value}))
    line = refused.value.line()
    assert field in line
    assert line.startswith("a/config.json")
    assert "\n" not in line
    assert len(line) < 200
