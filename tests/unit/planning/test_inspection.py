"""A model on paper against published figures and sums done by hand."""

import pytest

from llmprof.architectures.manifest import manifest_from_config
from llmprof.architectures.paper_manifest import paper_manifest
from llmprof.architectures.presets import preset_config
from llmprof.architectures.source import ModelSource
from llmprof.errors import InputError
from llmprof.planning.inspection import inspect_model
from llmprof.schema.inspection import Inspection
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.settings import AttentionKind, KvDtype, WeightDtype
from tests.published import LLAMA_2_7B, LLAMA_3_1_8B, PUBLISHED, SMOLLM2_135M, Published


def source(
    model: ModelConfig, manifest: WeightManifest | None = None, *, has_weights: bool = False
) -> ModelSource:
    return ModelSource(
        name=model.name,
        kind="config",
        config=model,
        manifest=manifest or manifest_from_config(model, "bf16"),
        files=(),
        tokenizer=None,
        has_weights=has_weights,
    )


def packed(model: ModelConfig) -> WeightManifest:
    """Matrices in blocks of 32 numbers and 20 bytes, the rest in fp32, as a file stores them."""
    full = manifest_from_config(model, "fp32")
    tensors = tuple(
        t.model_copy(update={"stored_dtype": "q4_1", "stored_bytes": t.parameters // 32 * 20})
        if len(t.shape) > 1
        else t
        for t in full.tensors
    )
    return WeightManifest(origin="gguf", tensors=tensors)


def codes(inspection: Inspection) -> set[str]:
    return {caveat.code for caveat in inspection.caveats}


@pytest.mark.parametrize("known", PUBLISHED, ids=lambda known: known.model.name)
def test_public_models(known: Published) -> None:
    found = inspect_model(source(known.model))
    assert found.parameters_total == known.parameters
    assert found.weight_bytes == 2 * known.parameters
    assert found.kv_bytes_per_token == known.kv_bytes_per_token
    assert found.prefill.flops_dense == known.prefill_512_last
    assert found.prefill.flops_causal == known.prefill_512_last_causal
    assert found.decode.flops == known.decode_at_512


def test_formula_of_the_cache_is_spelled_out() -> None:
    found = inspect_model(source(SMOLLM2_135M))
    assert found.kv_formula == (
        "2 (K and V) x 30 layers x 3 KV heads x 64 head dim x 2 bytes = 23,040 bytes"
    )
    assert found.parameters_embedding == 49_152 * 576


def test_bytes_of_a_prefill_and_a_decode_step() -> None:
    found = inspect_model(source(LLAMA_3_1_8B), prompt_tokens=512, context_tokens=2048, batch=4)
    read_once = 2 * (8_030_261_248 - 525_336_576)  # every tensor but the embedding table
    row, logits = 2 * 4096, 2 * 128_256
    assert found.prefill.bytes == read_once + 4 * (512 * row + 512 * 131_072 + logits)
    assert found.decode.bytes == read_once + 4 * (row + (2048 + 1) * 131_072 + logits)
    assert found.prefill.bytes < found.prefill.bytes_with_activations
    assert found.prefill_cost.flops_causal == found.prefill.flops_causal


def test_tied_head_reads_the_embedding_table() -> None:
    found = inspect_model(source(SMOLLM2_135M), context_tokens=0)
    row, cache, logits = 2 * 576, 23_040, 2 * 49_152
    assert found.decode.bytes == 2 * 134_515_008 + row + cache + logits


def test_packed_file_counts_as_stored_and_says_so() -> None:
    manifest = packed(SMOLLM2_135M)
    found = inspect_model(source(SMOLLM2_135M, manifest, has_weights=True))
    norms = 4 * 576 * 61
    assert found.weight_dtypes == {"q4_1": (134_515_008 - 576 * 61) * 20 // 32, "fp32": norms}
    assert found.weight_bytes == manifest.stored_bytes
    assert found.prefill_cost.ops[0].compute_dtype == "bf16"
    assert codes(found) == {"packed-weights"}


def test_another_dtype_changes_bytes_and_not_flops() -> None:
    as_stored = inspect_model(source(LLAMA_2_7B))
    fp32 = inspect_model(source(LLAMA_2_7B), weight_dtype=WeightDtype.FP32)
    assert fp32.weight_bytes == 2 * as_stored.weight_bytes
    assert fp32.decode.flops == as_stored.decode.flops
    assert fp32.kv_bytes_per_token == 2 * as_stored.kv_bytes_per_token
    assert codes(fp32) == {"on-paper"}


@pytest.mark.parametrize(("dtype", "scales"), [(KvDtype.INT8, 4), (KvDtype.FP8, 0)])
def test_a_quantized_cache_counts_as_the_engine_keeps_it(dtype: KvDtype, scales: int) -> None:
    """K and V of 8 heads in 32 layers: 128 bytes, and in int8 a scale in fp32."""
    found = inspect_model(source(LLAMA_3_1_8B), kv_dtype=dtype)
    assert found.kv_bytes_per_token == 2 * 32 * 8 * (128 + scales)
    assert codes(found) == {"on-paper"}


def test_scales_of_a_latent_are_no_more_than_about_right() -> None:
    deepseek = preset_config("deepseek-v3")
    found = inspect_model(source(deepseek, paper_manifest(deepseek)), kv_dtype=KvDtype.INT8)
    assert "latent-scales" in codes(found)


def test_standard_attention_adds_its_scores() -> None:
    flash = inspect_model(source(SMOLLM2_135M))
    standard = inspect_model(source(SMOLLM2_135M), attention=AttentionKind.STANDARD)
    scores = 30 * 9 * 512 * 512 * 2
    assert standard.prefill.bytes - flash.prefill.bytes == 4 * scores


@pytest.mark.parametrize(("prompt", "context"), [(4097, 4096), (4096, 4097)])
def test_more_tokens_than_positions(prompt: int, context: int) -> None:
    inspect_model(source(LLAMA_2_7B), prompt_tokens=4096, context_tokens=4096)
    with pytest.raises(InputError, match=r"4,097 tokens .* 4,096 positions of llama-2-7b"):
        inspect_model(source(LLAMA_2_7B), prompt_tokens=prompt, context_tokens=context)
