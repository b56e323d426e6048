"""Costs of a step against published figures and sums done by hand."""

import pytest

from llmprof.architectures.manifest import manifest_from_config
from llmprof.costs.options import CostOptions
from llmprof.costs.step import step_cost
from llmprof.costs.weight_layout import laid_out
from llmprof.schema.cost import OpCost, OpGroup, Phase, SequenceShape, StepCost, StepShape
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import AttentionKind, KvLayout, Quantization, WeightsSettings
from tests.published import LLAMA_3_1_8B, PUBLISHED, Published, decoder

STANDARD = CostOptions(attention=AttentionKind.STANDARD)
NO_CACHE = CostOptions(kv_layout=KvLayout.NONE)

# hidden 8, feed-forward 12, 4 query heads on 2 KV heads of 3: q 12 and k, v 6 wide
TOY = decoder("toy", 2, 8, 12, 4, 2, 10, head_dim=3)


def prefill(tokens: int, *, batch: int = 1, rows: int | None = None) -> StepShape:
    return StepShape(
        phase=Phase.PREFILL,
        sequences=(SequenceShape(count=batch, new_tokens=tokens, cached_tokens=0),),
        logit_rows=batch if rows is None else rows,
    )


def decode(*contexts: int) -> StepShape:
    return StepShape(
        phase=Phase.DECODE,
        sequences=tuple(SequenceShape(new_tokens=1, cached_tokens=c) for c in contexts),
        logit_rows=len(contexts),
    )


def decode_batch(batch: int, context: int) -> StepShape:
    sequences = (SequenceShape(count=batch, new_tokens=1, cached_tokens=context),)
    return StepShape(phase=Phase.DECODE, sequences=sequences, logit_rows=batch)


def cost(model: ModelConfig, shape: StepShape, options: CostOptions | None = None) -> StepCost:
    return step_cost(model, manifest_from_config(model, "bf16"), shape, options or CostOptions())


def op(step: StepCost, name: str) -> OpCost:
    (found,) = (op for op in step.ops if op.name == name)
    return found


@pytest.mark.parametrize("known", PUBLISHED, ids=lambda known: known.model.name)
def test_flops_of_public_models_are_exact(known: Published) -> None:
    last, every = cost(known.model, prefill(512)), cost(known.model, prefill(512, rows=512))
    step = cost(known.model, decode(512))
    assert last.flops_dense == known.prefill_512_last
    assert last.flops_causal == known.prefill_512_last_causal
    assert every.flops_dense == known.prefill_512_all
    assert step.flops_dense == step.flops_causal == step.flops == known.decode_at_512


@pytest.mark.parametrize(
    ("batch", "context", "gigabytes", "intensity"),
    [(1, 2048, 15.3, 1.05), (32, 2048, 23.6, 21.8), (32, 16_384, 83.7, 9.0)],
)
def test_decode_traffic_of_llama_8b(
    batch: int, context: int, gigabytes: float, intensity: float
) -> None:
    step = cost(LLAMA_3_1_8B, decode_batch(batch, context))
    assert step.traffic.required / 1e9 == pytest.approx(gigabytes, abs=0.06)
    assert step.flops / step.traffic.required == pytest.approx(intensity, rel=0.006)


def test_flash_needs_the_causal_pairs_and_standard_all_of_them() -> None:
    shape = prefill(16)
    flash, standard = cost(TOY, shape), cost(TOY, shape, STANDARD)
    assert flash.flops == flash.flops_causal < flash.flops_dense
    assert standard.flops == standard.flops_dense == flash.flops_dense
    assert standard.flops_causal == flash.flops_causal


def test_non_square_causal_prefill() -> None:
    """4 new tokens on 6 cached: 7 + 8 + 9 + 10 = 34 pairs, not half of a square."""
    shape = StepShape(
        phase=Phase.PREFILL,
        sequences=(SequenceShape(new_tokens=4, cached_tokens=6),),
        logit_rows=0,
    )
    attention = op(cost(TOY, shape), "attention")
    per_pair = 2 * 2 * 4 * 3 * 2  # multiply-add, two products, 4 heads of 3, 2 layers
    assert attention.flops_causal == 34 * per_pair
    assert attention.flops_dense == 40 * per_pair


def test_ragged_batch_is_summed_and_not_padded() -> None:
    attention = op(cost(TOY, decode(1, 2, 3, 4)), "attention")
    assert attention.flops == (1 + 2 + 3 + 4 + 4) * 96  # each attends to itself too
    assert attention.traffic.kv_read == (1 + 2 + 3 + 4) * 2 * 2 * 6 * 2


def test_projections_of_a_toy_by_hand() -> None:
    step = cost(TOY, prefill(5, rows=1))
    assert op(step, "qkv_projection").flops == 2 * 2 * 5 * 8 * (12 + 6 + 6)
    assert op(step, "output_projection").flops == 2 * 2 * 5 * 12 * 8
    assert op(step, "gate_up_projection").flops == 2 * 2 * 5 * 8 * 24
    assert op(step, "down_projection").flops == 2 * 2 * 5 * 12 * 8
    assert op(step, "lm_head").flops == 2 * 8 * 10
    assert op(step, "qkv_projection").traffic.weights == 2 * 2 * 8 * 24
    assert op(step, "qkv_projection").traffic.activations == 2 * 2 * 5 * (8 + 24)


def test_traffic_of_the_ops_without_matrix_work() -> None:
    step = cost(TOY, prefill(5, rows=1))
    assert op(step, "norm.input").traffic.weights == 2 * 2 * 8
    assert op(step, "norm.input").traffic.activations == 2 * 2 * (5 * 8 + 5 * 8)
    assert op(step, "norm.final").traffic.activations == 2 * (8 + 8)
    assert op(step, "rope").traffic.activations == 2 * 2 * 2 * 5 * 18
    assert op(step, "kv_append").traffic.kv_write == 2 * 2 * 5 * 12
    assert op(step, "activation").traffic.activations == 2 * 2 * 5 * (24 + 12)
    assert op(step, "down_projection.residual").traffic.activations == 2 * 2 * 5 * 8 * 3
    for name in ("norm.input", "rope", "kv_append", "activation", "sampling", "embedding"):
        assert op(step, name).flops == 0


@pytest.mark.parametrize("tied", [True, False])
def test_head_costs_the_same_tied_or_not_and_a_look_up_only_its_rows(tied: bool) -> None:
    model = decoder("head", 1, 64, 128, 4, 4, 1000, tied=tied)
    step = cost(model, decode(7))
    assert op(step, "lm_head").flops == 128_000
    assert op(step, "lm_head").traffic.weights == 2 * 64 * 1000
    assert op(step, "embedding").flops == 0
    assert op(step, "embedding").traffic.weights == 2 * 64


def test_logits_are_written_once_and_are_no_activation() -> None:
    step = cost(TOY, prefill(5, batch=3))
    assert step.traffic.logits == 3 * 10 * 2
    assert op(step, "lm_head").traffic.activations == 3 * 8 * 2
    assert op(step, "sampling").traffic.activations == 3 * 10 * 2
    assert op(step, "norm.final").traffic.activations == 3 * (8 + 8) * 2


def test_attention_reads_queries_keys_and_values_and_writes_its_output() -> None:
    flash, standard = cost(TOY, prefill(5)), cost(TOY, prefill(5), STANDARD)
    assert op(flash, "attention").traffic.activations == 2 * 2 * 5 * (12 + 6 + 6 + 12)
    assert op(standard, "attention.scores").traffic.activations == 2 * 2 * 5 * (12 + 6)
    assert op(standard, "attention.values").traffic.activations == 2 * 2 * 5 * (6 + 12)


def test_step_without_sampled_rows_has_no_head() -> None:
    names = {op.name for op in cost(TOY, prefill(5, rows=0)).ops}
    assert not names & {"lm_head", "sampling", "norm.final"}


def test_standard_attention_writes_its_scores_and_reads_them_back() -> None:
    step = cost(TOY, decode(9), STANDARD)
    one_pass = 2 * 4 * 1 * 10 * 2  # layers, heads, rows, attended tokens, bytes
    assert op(step, "attention.scores").traffic.scores == one_pass
    assert op(step, "attention.softmax").traffic.scores == 2 * one_pass
    assert op(step, "attention.values").traffic.scores == one_pass
    assert step.traffic.kv_read == cost(TOY, decode(9)).traffic.kv_read == 9 * 2 * 2 * 6 * 2


def test_without_a_cache_keys_and_values_are_activations() -> None:
    cached, uncached = cost(TOY, prefill(9)), cost(TOY, prefill(9), NO_CACHE)
    assert uncached.traffic.kv_read == uncached.traffic.kv_write == 0
    assert "kv_append" not in {op.name for op in uncached.ops}
    assert uncached.flops == cached.flops
    assert op(uncached, "attention").traffic == op(cached, "attention").traffic


def test_cached_tokens_without_a_cache_are_refused() -> None:
    with pytest.raises(ValueError, match="none cached"):
        cost(TOY, decode(9), NO_CACHE)


def test_query_and_key_norms_are_read_and_counted() -> None:
    plain, normed = cost(TOY, decode(3)), cost(TOY.model_copy(update={"qk_norm": True}), decode(3))
    assert normed.traffic.weights - plain.traffic.weights == 2 * 2 * (3 + 3)
    assert op(normed, "norm.query").traffic.activations == 2 * 2 * 2 * 12


def test_every_stored_byte_is_read_once_but_the_rest_of_the_embedding() -> None:
    manifest = manifest_from_config(TOY, "bf16")
    step = cost(TOY, decode(3))
    assert step.traffic.weights == manifest.stored_bytes - 2 * 8 * (10 - 1)


def test_biases_and_packed_weights_count_as_they_are_stored() -> None:
    biased = TOY.model_copy(update={"attention_bias": True})
    step = cost(biased, decode(3))
    assert op(step, "qkv_projection").traffic.weights == 2 * 2 * (8 * 24 + 24)
    manifest = manifest_from_config(TOY, "bf16")
    packed = manifest.model_copy(
        update={
            "tensors": tuple(
                t.model_copy(update={"stored_dtype": "q4_1", "stored_bytes": 1})
                if t.name.endswith("down_proj.weight")
                else t
                for t in manifest.tensors
            )
        }
    )
    step = step_cost(TOY, packed, decode(3), CostOptions())
    assert op(step, "down_projection").traffic.weights == 2


def test_packed_weights_are_copied_out_for_products_of_many_rows_alone() -> None:
    """Two layers of 24 x 8 and 12 x 8 codes and a head of 10 x 8, as bf16, written and read."""
    packed_ops = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "lm_head.weight")
    manifest = manifest_from_config(TOY, "bf16")
    packed = manifest.model_copy(
        update={
            "tensors": tuple(
                t.model_copy(update={"stored_dtype": "int4_g32_sym"})
                if t.name.endswith(packed_ops)
                else t
                for t in manifest.tensors
            )
        }
    )
    options = CostOptions(packed_rows=16)
    few = step_cost(TOY, packed, decode_batch(16, 3), options)
    assert few.traffic.copies == 0
    many = step_cost(TOY, packed, decode_batch(17, 3), options)
    assert op(many, "qkv_projection").traffic.copies == 2 * (24 * 8) * 2 * 2
    assert op(many, "lm_head").traffic.copies == 10 * 8 * 2 * 2
    assert many.traffic.copies == sum(
        op(many, name).traffic.copies for name in ("qkv_projection", "lm_head")
    )


def test_many_rows_times_fp8_weights_in_fp8_arithmetic() -> None:
    """Two layers: rows of 64 numbers in fp8 with a scale, written and read back; nothing unpacked."""
    model = decoder("wide", 2, 64, 96, 2, 1, 10, context=128)
    weights = laid_out(model, WeightsSettings(quantization=Quantization.FP8), "bf16")
    plain = CostOptions(packed_rows=16)
    options = CostOptions(packed_rows=16, fp8_arithmetic=True)
    few, unpacking = (step_cost(model, weights, decode_batch(n, 3), plain) for n in (16, 17))
    assert step_cost(model, weights, decode_batch(16, 3), options) == few
    many = step_cost(model, weights, decode_batch(17, 3), options)
    qkv, before = op(many, "qkv_projection"), op(unpacking, "qkv_projection")
    assert (qkv.compute_dtype, before.compute_dtype) == ("fp8", "bf16")
    assert (qkv.traffic.copies, before.traffic.copies) == (0, 2 * (128 * 64) * 2 * 2)
    assert qkv.traffic.activations - before.traffic.activations == 2 * 17 * (64 + 4) * 2
    assert (qkv.flops, qkv.traffic.weights) == (before.flops, 2 * 128 * (64 + 4))
    in_fp8 = {one.name for one in many.ops if one.compute_dtype == "fp8"}
    projections = {"qkv_projection", "output_projection", "gate_up_projection", "down_projection"}
    assert in_fp8 == projections  # the head is in int8, and unpacked
    assert op(many, "lm_head").traffic.copies == 10 * 64 * 2 * 2


def test_shapes_that_tensor_cores_do_not_take_in_fp8_are_unpacked() -> None:
    model = decoder("narrow", 1, 64, 72, 2, 1, 10, context=128)
    weights = laid_out(model, WeightsSettings(quantization=Quantization.FP8), "bf16")
    options = CostOptions(packed_rows=16, fp8_arithmetic=True)
    many = step_cost(model, weights, decode_batch(17, 3), options)
    down = op(many, "down_projection")
    assert (down.compute_dtype, down.traffic.copies) == ("bf16", 64 * 72 * 2 * 2)
    assert op(many, "gate_up_projection").compute_dtype == "fp8"


def test_calls_are_layers_or_one_and_names_are_unique() -> None:
    step = cost(TOY, decode(3), STANDARD)
    names = [op.name for op in step.ops]
    assert len(names) == len(set(names))
    once = {"embedding", "norm.final", "lm_head", "sampling"}
    assert {op.name for op in step.ops if op.calls == 1} == once
    assert {op.calls for op in step.ops} == {1, 2}
    assert {op.group for op in step.ops} == set(OpGroup) - {OpGroup.OTHER, OpGroup.COMMUNICATION}


def test_kv_bytes_follow_the_number_stored() -> None:
    half, q8 = cost(TOY, decode(9)), cost(TOY, decode(9), CostOptions(kv_bytes_per_number=34 / 32))
    assert q8.traffic.kv_read / half.traffic.kv_read == pytest.approx(34 / 64)
