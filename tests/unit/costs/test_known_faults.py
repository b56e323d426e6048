"""Faults from the public record of memory calculators, each with a small input and the right value."""

from typing import Any

import pytest

from llmprof.architectures.config_json import parse_config
from llmprof.architectures.paper_manifest import paper_manifest
from llmprof.architectures.presets import preset_config
from llmprof.costs.kv_cache import KvConvention, kv_bytes_at, kv_bytes_per_token
from llmprof.costs.linear_state import state_bytes_per_sequence
from llmprof.costs.options import CostOptions, kv_bytes_per_number
from llmprof.costs.parameters import count_parameters
from llmprof.costs.routing import expected_experts
from llmprof.costs.step import step_cost
from llmprof.costs.tensor_parallel import weight_bytes_per_device
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.cost import Phase, SequenceShape, StepShape
from llmprof.schema.model import ModelConfig
from tests.model_files import tiny_config

BF16 = 2.0


def shape_of(**changes: object) -> ModelConfig:
    return parse_config(tiny_config(**changes), name="case")


def gemma4(**changes: object) -> ModelConfig:
    """Thirty-five layers, one KV head of 256, all in full."""
    config: dict[str, Any] = {
        "model_type": "gemma4_text",
        "num_hidden_layers": 35,
        "hidden_size": 1536,
        "intermediate_size": 6144,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "global_head_dim": 256,
        "layer_types": ["full_attention"] * 35,
    }
    return parse_config(config | changes, name="case")


class TestKvCache:
    @pytest.mark.parametrize(("kv_heads", "expected"), [(32, 524_288), (8, 131_072)])
    def test_kv_heads_not_query_heads(self, kv_heads: int, expected: int) -> None:
        model = shape_of(
            num_hidden_layers=32,
            hidden_size=4096,
            num_attention_heads=32,
            num_key_value_heads=kv_heads,
        )
        assert kv_bytes_per_token(model, BF16) == expected

    def test_head_dim_is_no_quotient(self) -> None:
        nemo = preset_config("mistral-nemo-12b")
        assert kv_bytes_per_token(nemo, BF16) == 163_840
        assert count_parameters(nemo).total == 12_247_782_400

    def test_a_latent_is_cached_once_with_its_rotated_key(self) -> None:
        assert kv_bytes_per_token(preset_config("deepseek-v3"), BF16) == 70_272

    def test_a_latent_under_other_names_is_no_plain_attention(self) -> None:
        with pytest.raises(CapabilityError, match="attention caches"):
            shape_of(model_type="newer_mla", q_lora_rank=512, architectures=...)
        deepseek: dict[str, Any] = {"architectures": ..., "model_type": "deepseek_v3"}
        latent = {"qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "q_lora_rank": 16}
        with pytest.raises(InputError, match="'kv_lora_rank' is missing"):
            shape_of(**deepseek, **latent)
        with pytest.raises(CapabilityError, match="q_lora_rank"):
            shape_of(q_lora_rank=512)

    def test_a_window_saturates(self) -> None:
        gemma = preset_config("gemma-3-27b")
        assert kv_bytes_at(gemma, 131_072, BF16) == 11_173_625_856
        full = kv_bytes_at(gemma, 131_072, BF16, convention=KvConvention.ENGINE_ALLOCATED)
        assert full == 66_571_993_088

    @pytest.mark.parametrize("window", [131_072, None, -1, 0])
    def test_a_window_that_is_switched_off(self, window: int | None) -> None:
        model = shape_of(
            model_type="qwen2",
            architectures=...,
            num_hidden_layers=28,
            hidden_size=3584,
            num_attention_heads=28,
            num_key_value_heads=4,
            sliding_window=window,
            use_sliding_window=False,
            max_window_layers=28,
            max_position_embeddings=32_768,
        )
        assert kv_bytes_per_token(model, BF16) == 57_344
        assert kv_bytes_at(model, 32_768, BF16) == 32_768 * 57_344

    def test_linear_layers_cache_no_tokens(self) -> None:
        qwen = preset_config("qwen3-next-80b-a3b")
        assert kv_bytes_per_token(qwen, BF16) == 24_576
        assert state_bytes_per_sequence(qwen) == 77_856_768
        dense = parse_config(
            {
                "model_type": "qwen3_5_text",
                "num_hidden_layers": 64,
                "hidden_size": 5120,
                "intermediate_size": 17_408,
                "num_attention_heads": 24,
                "num_key_value_heads": 4,
                "head_dim": 256,
                "vocab_size": 248_320,
                "max_position_embeddings": 262_144,
                "full_attention_interval": 4,
                "linear_conv_kernel_dim": 4,
                "linear_key_head_dim": 128,
                "linear_num_key_heads": 16,
                "linear_num_value_heads": 48,
                "linear_value_head_dim": 128,
            },
            name="case",
        )
        assert kv_bytes_per_token(dense, BF16) == 65_536

    def test_layers_that_share_a_cache_add_none(self) -> None:
        alone, shared = gemma4(), gemma4(num_kv_shared_layers=20)
        assert kv_bytes_per_token(alone, BF16) == 35_840
        assert kv_bytes_per_token(shared, BF16) == 15_360
        # 20 layers lose a key and a value projection and the norm of the keys ...
        lost = 20 * (2 * 1536 * 256 + 256)
        assert count_parameters(alone).total - count_parameters(shared).total == lost
        # ... and still let queries attend
        assert attention_flops(shared, cached=99) == attention_flops(alone, cached=99)

    def test_a_quantized_cache_has_scales(self) -> None:
        llama = preset_config("llama-3.1-8b")
        assert kv_bytes_per_token(llama, kv_bytes_per_number("q8_0", 128)) == 69_632

    def test_a_latent_is_whole_on_every_device(self) -> None:
        deepseek = preset_config("deepseek-v3")
        assert kv_bytes_per_token(deepseek, BF16, tensor_parallel=8) == 70_272

    @pytest.mark.parametrize(("devices", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1)])
    def test_kv_heads_are_shared_out_and_then_repeated(self, devices: int, heads: int) -> None:
        llama = preset_config("llama-3.1-70b")
        found = kv_bytes_per_token(llama, BF16, tensor_parallel=devices)
        assert found == 327_680 / 8 * heads

    def test_heads_that_do_not_divide_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"8 KV heads .* 3 devices"):
            kv_bytes_per_token(preset_config("llama-3.1-70b"), BF16, tensor_parallel=3)

    @pytest.mark.parametrize(
        ("preset", "context"), [("deepseek-v3", 163_840), ("llama-3.1-8b", 131_072)]
    )
    def test_a_stretched_context_is_stated_once(self, preset: str, context: int) -> None:
        assert preset_config(preset).max_position_embeddings == context

    def test_blocks_round_up_what_a_window_holds(self) -> None:
        phi = preset_config("phi-3-mini-4k")  # 32 layers, all of window 2047
        ideal, rounded, allocated = (
            kv_bytes_at(phi, 4000, BF16, convention=one, block_tokens=16) for one in KvConvention
        )
        assert (ideal, rounded, allocated) == (2047 * 393_216, 2048 * 393_216, 4000 * 393_216)


class TestParameters:
    def test_a_tied_table_counts_once(self) -> None:
        count = count_parameters(preset_config("llama-3.2-1b"))
        assert (count.total, count.head) == (1_235_814_400, 0)

    def test_multi_token_prediction_is_apart(self) -> None:
        deepseek = preset_config("deepseek-v3")
        count = count_parameters(deepseek)
        assert (count.total, count.mtp) == (671_026_404_352, 11_610_067_968)
        manifest = paper_manifest(deepseek)
        every = (*manifest.tensors, *manifest.apart)
        assert sum(one.stored_bytes for one in every) == 688_574_839_360
        packed = [one for one in every if one.stored_dtype.startswith("fp8")]
        assert sum(one.stored_bytes - one.parameters for one in packed) == 4 * 41_540_496
        qwen = count_parameters(preset_config("qwen3-next-80b-a3b"))
        assert qwen.total + qwen.mtp == 81_324_862_720

    @pytest.mark.parametrize(
        ("preset", "billions"),
        [
            ("gpt-oss-120b", (5.712, 5.133, 4.554)),
            ("qwen3-30b-a3b", (3.353, 3.042, 2.731)),
            ("deepseek-v3", (37.552, 36.626, 35.699)),
            ("deepseek-v2-lite", (2.661, 2.451, 2.242)),
            ("qwen3-next-80b-a3b", (3.875, 3.564, 3.253)),
            ("mixtral-8x7b", (12.880, 12.749, 12.618)),
        ],
    )
    def test_active_by_each_convention(
        self, preset: str, billions: tuple[float, float, float]
    ) -> None:
        count = count_parameters(preset_config(preset))
        found = (
            count.active,
            count.active_without_embedding,
            count.active_without_embedding_and_head,
        )
        assert tuple(round(one / 1e9, 3) for one in found) == billions


class TestExperts:
    def test_one_token_reads_its_experts_alone(self) -> None:
        mixtral = preset_config("mixtral-8x7b")
        decode = step_cost(mixtral, paper_manifest(mixtral), one_token(0), CostOptions())
        weights = decode.traffic.weights - 2 * mixtral.hidden_size  # but for the row looked up
        assert weights == pytest.approx(25_497_706_496, rel=1e-12)
        assert round(3.35e12 / weights, 1) == 131.4

    def test_width_of_an_expert_and_of_a_dense_layer(self) -> None:
        deepseek = preset_config("deepseek-v3")
        sizes = [3 * 7168 * layer.mlp.intermediate_size for layer in deepseek.layers]
        assert sizes == [396_361_728] * 3 + [44_040_192] * 58

    def test_tokens_that_choose_for_themselves(self) -> None:
        assert expected_experts(8, 2, 1) == pytest.approx(2)
        assert expected_experts(8, 2, 2) == pytest.approx(8 * (1 - 0.75**2))
        assert expected_experts(8, 2, 1000) == pytest.approx(8)


class TestFlops:
    def test_both_products_of_latent_attention_count(self) -> None:
        """Per token of context and layer: 2 x 128 heads x (192 of scores + 128 of values)."""
        deepseek = preset_config("deepseek-v3")
        longer = attention_flops(deepseek, cached=100) - attention_flops(deepseek, cached=99)
        assert longer / 61 == 81_920

    def test_layers_with_a_window_attend_within_it(self) -> None:
        """12 of 24 layers see 128 tokens of the 513; all of them in full would be 7,416,004,608."""
        gpt = preset_config("gpt-oss-20b")
        decode = step_cost(gpt, paper_manifest(gpt), one_token(512), CostOptions())
        assert sum(op.flops for op in decode.ops) == 7_340_310_528
        beyond = 12 * (513 - 128) * 4 * 64 * 64  # layers, tokens, two products, heads, head dim
        assert 7_340_310_528 + beyond == 7_416_004_608
        assert attention_flops(gpt, cached=512) - attention_flops(gpt, cached=511) == (
            12 * 4 * 64 * 64
        )


class TestDevices:
    def test_weights_of_one_of_several_devices(self) -> None:
        llama = preset_config("llama-3.1-70b")
        manifest = paper_manifest(llama)
        norms = 2 * 8192 * (2 * 80 + 1)
        shared = manifest.stored_bytes - norms
        assert weight_bytes_per_device(llama, manifest, 8) == shared // 8 + norms
        # sixteen devices repeat each of the eight KV heads once
        kv = 2 * 80 * 2 * 8192 * 1024
        repeated = (shared - kv) // 16 + kv // 8 + norms
        assert weight_bytes_per_device(llama, manifest, 16) == repeated

    def test_fused_queries_keys_and_values(self) -> None:
        phi = preset_config("phi-3-mini-4k")
        manifest = paper_manifest(phi)
        norms = 2 * 3072 * (2 * 32 + 1)
        shared = manifest.stored_bytes - norms
        assert weight_bytes_per_device(phi, manifest, 4) == shared // 4 + norms


def one_token(cached: int) -> StepShape:
    token = SequenceShape(new_tokens=1, cached_tokens=cached)
    return StepShape(phase=Phase.DECODE, sequences=(token,), logit_rows=1)


def attention_flops(model: ModelConfig, *, cached: int) -> float:
    cost = step_cost(model, paper_manifest(model), one_token(cached), CostOptions())
    return sum(op.flops for op in cost.ops if op.name == "attention")
