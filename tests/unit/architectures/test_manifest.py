"""Tensors from the shape alone, against hand counts."""

import pytest

from llmprof.architectures.config_json import parse_config
from llmprof.architectures.manifest import (
    checked_manifest,
    expected_tensors,
    manifest_from_config,
)
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.model import ModelConfig, TensorSpec
from tests.model_files import tiny_config, tiny_hf_tensors


def tiny(**changes: object) -> ModelConfig:
    return parse_config(tiny_config(**changes), name="tiny")


def stored(config: ModelConfig) -> list[TensorSpec]:
    return list(manifest_from_config(config, "fp32").tensors)


def test_names_and_shapes_are_those_of_a_checkpoint() -> None:
    expected = {name: tensor.shape for name, tensor in tiny_hf_tensors().items()}
    assert expected_tensors(tiny()) == expected


def test_parameters_by_hand() -> None:
    # embedding and head 2 x 48 x 32; per layer q, o 2 x 32 x 32, k, v 2 x 16 x 32,
    # gate, up, down 3 x 64 x 32, two norms of 32; final norm 32
    by_hand = 2 * 1536 + 2 * (2 * 1024 + 2 * 512 + 3 * 2048 + 64) + 32
    assert manifest_from_config(tiny(), "bf16").parameters == by_hand


def test_a_tied_head_counts_once() -> None:
    tied = manifest_from_config(tiny(tie_word_embeddings=True), "bf16")
    untied = manifest_from_config(tiny(), "bf16")
    assert untied.parameters - tied.parameters == 48 * 32
    assert "lm_head.weight" not in {spec.name for spec in tied.tensors}


@pytest.mark.parametrize(
    ("changes", "extra"),
    [
        ({"attention_bias": True}, 32 + 16 + 16 + 32),
        ({"mlp_bias": True}, 64 + 64 + 32),
        ({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}, 32 + 16 + 16),
        (
            {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 8},
            8 + 8,
        ),
    ],
)
def test_biases_and_norms_of_each_family(changes: dict[str, object], extra: int) -> None:
    plain = manifest_from_config(tiny(), "fp16").parameters
    assert manifest_from_config(tiny(**changes), "fp16").parameters == plain + 2 * extra


@pytest.mark.parametrize(("dtype", "size"), [("fp32", 4), ("bf16", 2), ("fp16", 2)])
def test_stored_bytes(dtype: str, size: int) -> None:
    manifest = manifest_from_config(tiny(), dtype)
    assert manifest.stored_bytes == size * manifest.parameters
    assert {spec.stored_dtype for spec in manifest.tensors} == {dtype}


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(CapabilityError, match="int3"):
        manifest_from_config(tiny(), "int3")


def test_a_stored_copy_of_a_tied_head_is_not_counted() -> None:
    found = stored(tiny())
    tied = tiny(tie_word_embeddings=True)
    manifest = checked_manifest(tied, found, origin="safetensors", where="here")
    assert manifest.parameters == manifest_from_config(tied, "fp32").parameters


def test_order_is_that_of_the_forward_pass() -> None:
    config = tiny()
    manifest = checked_manifest(config, stored(config)[::-1], origin="gguf", where="here")
    assert [spec.name for spec in manifest.tensors] == list(expected_tensors(config))


def test_a_missing_tensor_is_named() -> None:
    with pytest.raises(InputError, match=r"here: tensor 'model.norm.weight' is missing"):
        checked_manifest(
            tiny(),
            [spec for spec in stored(tiny()) if spec.name != "model.norm.weight"],
            origin="gguf",
            where="here",
        )


def test_a_surplus_tensor_is_named() -> None:
    found = stored(tiny(num_hidden_layers=3))
    with pytest.raises(InputError, match=r"model\.layers\.2\.input_layernorm"):
        checked_manifest(tiny(), found, origin="gguf", where="here")


def test_a_wrong_shape_is_named() -> None:
    found = stored(tiny(intermediate_size=96))
    with pytest.raises(InputError, match=r"mlp\.gate_proj.*\[96, 32\].*\[64, 32\]"):
        checked_manifest(tiny(), found, origin="gguf", where="here")
