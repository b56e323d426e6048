"""Which tensor is kept in which format."""

from typing import Literal

import pytest

from llmprof.architectures.manifest import manifest_from_config
from llmprof.architectures.presets import preset_config
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


def laid_out_preset(name: str, quantization: Quantization) -> dict[str, tuple[str, int]]:
    """Of its first layer: module -> format and bytes."""
    weights = WeightsSettings(quantization=quantization)
    tensors = laid_out(preset_config(name), weights, "bf16").tensors
    first = [one for one in tensors if one.name.startswith("model.layers.0.")]
    return {
        one.name.removeprefix("model.layers.0."): (one.stored_dtype, one.stored_bytes)
        for one in first
    }


def test_biases_of_experts_stay_floats_though_they_have_two_dimensions() -> None:
    """gpt-oss-20b: 32 experts with 2 x 2,880 gates and ups, and 2,880 outputs."""
    tensors = laid_out_preset("gpt-oss-20b", Quantization.INT8)
    assert tensors["mlp.experts.gate_up_proj.bias"] == ("bf16", 2 * 32 * 5760)
    assert tensors["mlp.experts.down_proj.bias"] == ("bf16", 2 * 32 * 2880)
    assert tensors["mlp.experts.down_proj.weight"] == ("int8_g32", 32 * 2880 * 2880 // 32 * 34)


@pytest.mark.parametrize("quantization", [Quantization.INT8, Quantization.INT4, Quantization.FP8])
def test_convolutions_stay_floats(quantization: Quantization) -> None:
    """Qwen3-Next: 8,192 channels with 4 taps each, which no group of 32 divides."""
    tensors = laid_out_preset("qwen3-next-80b-a3b", quantization)
    assert tensors["linear_attn.conv1d.weight"] == ("bf16", 2 * 8192 * 4)
    assert tensors["linear_attn.in_proj_qkvz.weight"][0].startswith(quantization.value)


def test_a_matrix_that_cannot_be_packed_is_refused_by_name() -> None:
    odd = decoder("odd", 1, 40, 96, 2, 1, 10, context=64)
    with pytest.raises(CapabilityError, match="embed_tokens"):
        stored(odd, Quantization.INT4)
