"""GGUF metadata and tensors as a model."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from llmprof.architectures.config_json import parse_config
from llmprof.architectures.gguf_header import GgufHeader, read_header
from llmprof.architectures.gguf_model import config_from_header, manifest_from_header
from llmprof.architectures.gguf_names import gguf_name, hf_name
from llmprof.architectures.installed_model import installed_model_file
from llmprof.architectures.manifest import expected_tensors
from llmprof.errors import CapabilityError, InputError, LlmprofError
from llmprof.schema.model import ModelConfig, RopeScaling
from tests.model_files import (
    Array,
    MetadataValue,
    Packed,
    tiny_config,
    tiny_gguf_metadata,
    tiny_gguf_tensors,
    tiny_hf_tensors,
    write_gguf,
)


def header(
    tmp_path: Path,
    metadata: Mapping[str, MetadataValue] | None = None,
    tensors: Mapping[str, Array | Packed] | None = None,
) -> GgufHeader:
    path = write_gguf(
        tmp_path / "tiny.gguf",
        tiny_gguf_metadata() if metadata is None else metadata,
        tiny_gguf_tensors() if tensors is None else tensors,
    )
    return read_header(path)


def config(tmp_path: Path, **changes: object) -> ModelConfig:
    return config_from_header(header(tmp_path, tiny_gguf_metadata(**changes)), name="tiny")  # type: ignore[arg-type]


def test_a_gguf_file_and_a_checkpoint_of_the_same_model_agree(tmp_path: Path) -> None:
    ours = config_from_header(header(tmp_path), name="tiny")
    assert ours == parse_config(tiny_config(), name="tiny")
    manifest = manifest_from_header(header(tmp_path), ours)
    assert {spec.name: spec.shape for spec in manifest.tensors} == {
        name: tensor.shape for name, tensor in tiny_hf_tensors().items()
    }
    assert manifest.stored_bytes == 4 * manifest.parameters


@pytest.mark.model
def test_the_demo_model() -> None:
    demo = read_header(installed_model_file())
    model = config_from_header(demo, name="demo")
    manifest = manifest_from_header(demo, model)
    assert manifest.parameters == 134_515_008
    assert 2 * model.num_hidden_layers * model.kv_size * 2 == 23_040
    assert model.tie_word_embeddings
    assert model.rms_norm_eps == 1e-5
    assert model.rope_theta == 100_000
    # 28,311,552 embedding numbers in q8_0 (34 bytes per 32), 106,168,320 in q4_1 (20 per 32), and
    # 61 norms of 576 in fp32
    assert manifest.stored_bytes == 30_081_024 + 66_355_200 + 140_544


def test_names_map_both_ways() -> None:
    assert hf_name("blk.17.ffn_down.weight") == "model.layers.17.mlp.down_proj.weight"
    assert hf_name("blk.0.attn_q.bias") == "model.layers.0.self_attn.q_proj.bias"
    pairs = dict(zip(tiny_gguf_tensors(), tiny_hf_tensors(), strict=True))
    for gguf, hugging_face in pairs.items():
        assert hf_name(gguf) == hugging_face
        assert gguf_name(hugging_face) == gguf


@pytest.mark.parametrize("name", ["blk.0.attn_qkv.weight", "blk.x.attn_q.weight", "v.patch", ""])
def test_a_foreign_name_is_refused(name: str) -> None:
    with pytest.raises(CapabilityError):
        hf_name(name)
    with pytest.raises(CapabilityError):
        gguf_name(name)


def test_no_output_tensor_means_a_tied_head(tmp_path: Path) -> None:
    tensors = tiny_gguf_tensors()
    del tensors["output.weight"]
    tied = header(tmp_path, tensors=tensors)
    model = config_from_header(tied, name="tiny")
    assert model.tie_word_embeddings
    assert "lm_head.weight" not in {s.name for s in manifest_from_header(tied, model).tensors}


def test_key_length_wins_over_the_quotient(tmp_path: Path) -> None:
    model = config(
        tmp_path, attention__key_length=128, attention__value_length=128, rope__dimension_count=128
    )
    assert model.head_dim == 128


def test_qwen2_biases_come_from_the_tensors(tmp_path: Path) -> None:
    tensors: dict[str, Array | Packed] = dict(tiny_gguf_tensors())
    for layer in range(2):
        for module, rows in (("attn_q", 32), ("attn_k", 16), ("attn_v", 16)):
            tensors[f"blk.{layer}.{module}.bias"] = np.zeros(rows, np.float32)
    file = header(tmp_path, tiny_gguf_metadata("qwen2"), tensors)
    model = config_from_header(file, name="tiny")
    assert (model.model_type, model.attention_bias, model.output_bias) == ("qwen2", True, False)
    assert len(manifest_from_header(file, model).tensors) == len(tensors)


def test_qwen3_has_norms_on_queries_and_keys(tmp_path: Path) -> None:
    tensors: dict[str, Array | Packed] = dict(tiny_gguf_tensors())
    for layer in range(2):
        tensors[f"blk.{layer}.attn_q_norm.weight"] = np.ones(8, np.float32)
        tensors[f"blk.{layer}.attn_k_norm.weight"] = np.ones(8, np.float32)
    file = header(tmp_path, tiny_gguf_metadata("qwen3"), tensors)
    model = config_from_header(file, name="tiny")
    assert model.qk_norm
    names = {spec.name for spec in manifest_from_header(file, model).tensors}
    assert "model.layers.1.self_attn.k_norm.weight" in names
    assert names == set(expected_tensors(model))


def test_token_ids(tmp_path: Path) -> None:
    metadata = tiny_gguf_metadata() | {
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.eot_token_id": 5,
    }
    model = config_from_header(header(tmp_path, metadata), name="tiny")
    assert (model.bos_token_id, model.eos_token_ids) == (1, (2, 5))


def test_the_dtype_of_a_float_file(tmp_path: Path) -> None:
    halves = {
        name: tensor.astype(np.float16) if tensor.ndim > 1 else tensor
        for name, tensor in tiny_gguf_tensors().items()
    }
    assert config_from_header(header(tmp_path, tensors=halves), name="t").torch_dtype == "fp16"
    mixed: dict[str, Array | Packed] = {**halves}
    mixed["blk.0.attn_q.weight"] = Packed("Q8_0", (32, 32), bytes(32 * 34))
    assert config_from_header(header(tmp_path, tensors=mixed), name="t").torch_dtype is None


def test_linear_and_yarn_scaling(tmp_path: Path) -> None:
    linear = config(tmp_path, rope__scaling__type="linear", rope__scaling__factor=4.0)
    assert linear.rope_scaling == RopeScaling(kind="linear", factor=4)
    yarn: dict[str, object] = {
        "rope__scaling__type": "yarn",
        "rope__scaling__factor": 4.0,
        "rope__scaling__original_context_length": 32,
    }
    assert config(tmp_path, **yarn).rope_scaling == RopeScaling(
        kind="yarn", factor=4, original_max_position_embeddings=32
    )
    scaled = config(tmp_path, rope__scaling__attn_factor=0.5, **yarn).rope_scaling
    assert scaled is not None
    assert scaled.attention_factor == pytest.approx(0.5 * 1.138629436)
    with pytest.raises(CapabilityError, match="longrope"):
        config(tmp_path, rope__scaling__type="longrope", rope__scaling__factor=4.0)


def llama3_divisors(head_dim: int, theta: float, factor: float) -> Array:
    """Written from the paper's description of the three bands, not from the code under test."""
    frequencies = theta ** -(np.arange(0, head_dim, 2) / head_dim)
    turns = 8192 * frequencies / (2 * math.pi)
    smooth = (turns - 1) / 3
    blended = (1 - smooth) * frequencies / factor + smooth * frequencies
    scaled = np.where(turns < 1, frequencies / factor, np.where(turns > 4, frequencies, blended))
    return (frequencies / scaled).astype(np.float32)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_scaling_is_derived_from_its_factor_tensor(tmp_path: Path, factor: float) -> None:
    wide = tiny_gguf_metadata(
        attention__key_length=64, attention__value_length=64, rope__freq_base=500000.0
    )
    tensors = tiny_gguf_tensors() | {"rope_freqs.weight": llama3_divisors(64, 5e5, factor)}
    model = config_from_header(header(tmp_path, wide, tensors), name="tiny")
    assert model.rope_scaling == RopeScaling(
        kind="llama3",
        factor=factor,
        low_freq_factor=1,
        high_freq_factor=4,
        original_max_position_embeddings=8192,
    )


def test_factors_are_a_buffer_and_not_a_parameter(tmp_path: Path) -> None:
    tensors = tiny_gguf_tensors() | {"rope_freqs.weight": np.ones(4, np.float32)}
    file = header(tmp_path, tensors=tensors)
    model = config_from_header(file, name="tiny")
    assert model.rope_scaling is None
    assert len(manifest_from_header(file, model).tensors) == len(tensors) - 1


@pytest.mark.parametrize(
    "factors",
    [
        np.array([1, 2, 4, 8], np.float32),
        np.array([1, 1, 1, np.nan], np.float32),
        np.array([1, 1, 1, np.inf], np.float32),
        np.zeros(4, np.float32),
        np.ones(4, np.float16),
        np.ones(5, np.float32),
    ],
)
def test_factors_that_mean_something_else_are_refused(tmp_path: Path, factors: Array) -> None:
    tensors = tiny_gguf_tensors() | {"rope_freqs.weight": factors}
    with pytest.raises(LlmprofError, match="rope_freqs"):
        config_from_header(header(tmp_path, tensors=tensors), name="tiny")


@pytest.mark.parametrize(
    "changes",
    [
        {"expert_shared_count": 1},
        {"rope__dimension_count": 4},
        {"attention__value_length": 16},
        {"attention__head_count_kv": [2, 1]},
        {"attention__causal": False},
        {"rope__scaling__yarn_ext_factor": 0.5},
    ],
)
def test_variations_are_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(CapabilityError, match=r"tiny\.gguf"):
        config(tmp_path, **changes)


def test_numbers_per_layer_that_agree_are_one_number(tmp_path: Path) -> None:
    assert config(tmp_path, attention__head_count_kv=[2, 2]).num_key_value_heads == 2
    assert config(tmp_path, attention__head_count_kv=...).num_key_value_heads == 4
    assert config(tmp_path, attention__sliding_window=128).max_position_embeddings == 128


@pytest.mark.parametrize("architecture", ["gpt2", "gemma4", "qwen2moe", "mistral3"])
def test_an_unknown_architecture_is_named(tmp_path: Path, architecture: str) -> None:
    with pytest.raises(CapabilityError, match=rf"'{architecture}'.*llama, mistral, qwen2, qwen3"):
        config_from_header(header(tmp_path, tiny_gguf_metadata(architecture)), name="tiny")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("block_count", ...),
        ("block_count", -1),
        ("block_count", "two"),
        ("embedding_length", 0.5),
        ("attention__head_count", 0),
        ("attention__head_count", 5),
        ("attention__head_count_kv", 3),
        ("attention__layer_norm_rms_epsilon", ...),
        ("attention__layer_norm_rms_epsilon", float("nan")),
        ("context_length", True),
        ("rope__freq_base", float("inf")),
        ("vocab_size", 47),
    ],
)
def test_a_bad_field_is_named(tmp_path: Path, field: str, value: object) -> None:
    with pytest.raises(InputError) as refused:
        config(tmp_path, **{field: value})
    assert "tiny.gguf" in refused.value.line()
    if value != 5:
        assert f"llama.{field.replace('__', '.')}" in refused.value.line()


def test_a_missing_architecture_or_embedding(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"general\.architecture"):
        config_from_header(header(tmp_path, {}), name="tiny")
    tensors = tiny_gguf_tensors()
    del tensors["token_embd.weight"]
    with pytest.raises(InputError, match=r"token_embd\.weight"):
        config_from_header(header(tmp_path, tensors=tensors), name="tiny")


def test_missing_surplus_and_misshapen_tensors_are_named_as_the_file_names_them(
    tmp_path: Path,
) -> None:
    model = config(tmp_path)
    tensors = tiny_gguf_tensors()
    del tensors["blk.1.attn_k.weight"]
    with pytest.raises(InputError, match=r"'blk\.1\.attn_k\.weight' is missing"):
        manifest_from_header(header(tmp_path, tensors=tensors), model)
    with pytest.raises(InputError, match=r"'blk\.2\.\w+\.weight' has no place"):
        manifest_from_header(header(tmp_path, tensors=tiny_gguf_tensors(layers=3)), model)
    foreign = tiny_gguf_tensors() | {"blk.0.attn_qkv.weight": np.ones(32, np.float32)}
    with pytest.raises(CapabilityError, match=r"tiny\.gguf.*'blk\.0\.attn_qkv\.weight'"):
        manifest_from_header(header(tmp_path, tensors=foreign), model)
    misshapen = tiny_gguf_tensors() | {"blk.0.attn_k.weight": np.ones((8, 32), np.float32)}
    with pytest.raises(InputError, match=r"'blk\.0\.attn_k\.weight' has the shape \[8, 32\]"):
        manifest_from_header(header(tmp_path, tensors=misshapen), model)


def test_head_sizes_are_stated_and_no_quotient(tmp_path: Path) -> None:
    shape: dict[str, object] = {
        "block_count": 36,
        "embedding_length": 2560,
        "attention__head_count": 32,
        "attention__head_count_kv": 8,
        "attention__key_length": 128,
        "attention__value_length": 128,
    }
    model = config(tmp_path, **shape)
    assert 2 * model.num_hidden_layers * model.kv_size * 2 == 147_456


def test_one_shard_of_several_gives_no_total(tmp_path: Path) -> None:
    metadata = tiny_gguf_metadata() | {"split.count": 9, "split.no": 0}
    path = write_gguf(tmp_path / "m-00001-of-00009.gguf", metadata, tiny_gguf_tensors())
    with pytest.raises(InputError, match="incomplete: shard 1 of 9"):
        config_from_header(read_header(path), name="m")


def test_the_header_and_not_the_name_says_how_it_is_stored(tmp_path: Path) -> None:
    tensors = {name: one.astype(np.float16) for name, one in tiny_gguf_tensors().items()}
    path = write_gguf(tmp_path / "x-Q4_0.gguf", tiny_gguf_metadata(), tensors)
    read = read_header(path)
    manifest = manifest_from_header(read, config_from_header(read, name="x"))
    assert manifest.stored_bytes == 2 * manifest.parameters


def test_a_window_shorter_than_the_context_is_described(tmp_path: Path) -> None:
    layers = config(tmp_path, attention__sliding_window=64).layers
    assert [one.attention.window for one in layers if one.attention.kind == "softmax"] == [64, 64]


def test_mixed_storage_is_summed_tensor_by_tensor(tmp_path: Path) -> None:
    tensors: dict[str, Array | Packed] = dict(tiny_gguf_tensors())
    tensors["blk.0.ffn_up.weight"] = Packed("Q8_0", (64, 32), bytes(64 * 34))
    tensors["blk.1.ffn_up.weight"] = Packed("Q4_1", (64, 32), bytes(64 * 20))
    file = header(tmp_path, tensors=tensors)
    manifest = manifest_from_header(file, config_from_header(file, name="tiny"))
    plain = 4 * (manifest.parameters - 2 * 64 * 32)
    assert manifest.stored_bytes == plain + 64 * 34 + 64 * 20
