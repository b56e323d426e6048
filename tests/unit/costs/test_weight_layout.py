"""Which tensor is kept in which format."""

from typing import Literal

import pytest

from llmprof.architectures.manifest import manifest_from_config
from llmprof.costs.weight_layout import laid_out
from llmprof.errors import CapabilityError
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import Quantization, WeightsSettings
from tests.published import decoder

# hidden 64, feed-forward 96, 2 query heads on 1 KV head of 32, vocabulary 10
MODEL = decoder("small", 1, 64, 96, 2, 1, 10, context=64)


def stored(
    model: ModelConfig,
    quantization: Quantization,
    group_size: Literal[32, 64, 128, "channel"] | None = None,
) -> dict[str, tuple[str, int]]:
    """Last words of a tensor's name -> its format and bytes."""
    weights = WeightsSettings(quantization=quantization, group_size=group_size)
    manifest = laid_out(model, weights, "bf16")
    return {
        tensor.name.removesuffix(".weight").rpartition(".")[2]: (
            tensor.stored_dtype,
            tensor.stored_bytes,
        )
        for tensor in manifest.tensors
    }


def test_without_quantization_it_is_the_configuration_in_one_dtype() -> None:
    assert laid_out(MODEL, WeightsSettings(), "bf16") == manifest_from_config(MODEL, "bf16")


def test_int8_per_channel_has_one_scale_per_row_and_leaves_norms_alone() -> None:
    tensors = stored(MODEL, Quantization.INT8, "channel")
    assert tensors["q_proj"] == ("int8", 64 * (64 + 4))
    assert tensors["down_proj"] == ("int8", 64 * (96 + 4))
    assert tensors["embed_tokens"] == tensors["lm_head"] == ("int8", 10 * (64 + 4))
    assert tensors["input_layernorm"] == ("bf16", 128)


def test_int4_keeps_embedding_and_head_in_int8() -> None:
    tensors = stored(MODEL, Quantization.INT4)
    assert tensors["q_proj"] == ("int4_g32_asym", 64 * 2 * (16 + 4))
    assert tensors["down_proj"] == ("int4_g32_asym", 64 * 3 * (16 + 4))
    assert tensors["embed_tokens"] == tensors["lm_head"] == ("int8_g32", 10 * 2 * (32 + 2))


def test_fp8_has_a_scale_per_row_and_keeps_embedding_and_head_in_int8() -> None:
    tensors = stored(MODEL, Quantization.FP8)
    assert tensors["q_proj"] == ("fp8", 64 * (64 + 4))
    assert tensors["down_proj"] == ("fp8", 64 * (96 + 4))
    assert tensors["embed_tokens"] == tensors["lm_head"] == ("int8_g32", 10 * 2 * (32 + 2))
    assert tensors["input_layernorm"] == ("bf16", 128)


def test_groups_are_as_large_as_asked_for_and_of_32_by_default() -> None:
    assert stored(MODEL, Quantization.INT8)["q_proj"] == ("int8_g32", 64 * 2 * (32 + 2))
    assert stored(MODEL, Quantization.INT4, 64)["gate_proj"] == ("int4_g64_asym", 96 * (32 + 4))
    tensors = stored(MODEL, Quantization.INT8, 64)
    assert tensors["gate_proj"] == ("int8_g64", 96 * (64 + 2))
    assert tensors["lm_head"] == ("int8_g64", 10 * (64 + 2))


def test_a_matrix_that_cannot_be_packed_is_refused_by_name() -> None:
    odd = decoder("odd", 1, 40, 96, 2, 1, 10, context=64)
    with pytest.raises(CapabilityError, match="embed_tokens"):
        stored(odd, Quantization.INT4)
