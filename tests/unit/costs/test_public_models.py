"""Seventeen public models, exact in everything that is known of them."""

import pytest

from llmprof.architectures.manifest import POSITIONS, expected_tensors
from llmprof.architectures.paper_manifest import paper_manifest
from llmprof.costs.kv_cache import KvConvention, cached_numbers, kv_bytes_at, kv_bytes_per_token
from llmprof.costs.linear_state import state_bytes_per_sequence
from llmprof.costs.options import CostOptions, kv_bytes_per_number
from llmprof.costs.parameters import count_parameters, expert_parameters
from llmprof.costs.step import step_cost
from llmprof.schema.cost import Phase, SequenceShape, StepCost, StepShape
from tests.public_models import PUBLIC_MODELS, PublicModel

each = pytest.mark.parametrize("public", PUBLIC_MODELS, ids=lambda one: one.name.split("/")[1])
BF16 = 2.0


@each
def test_parameters(public: PublicModel) -> None:
    count, known = count_parameters(public.model), public.known
    assert count.total == known["total"]
    assert (count.embedding, count.head) == (known["embedding"], known["head"])
    assert count.without_embedding_and_head == known["without_embedding_and_head"]
    assert count.active == known["active"]
    assert count.active_without_embedding == known["active_without_embedding"]
    assert count.active_without_embedding_and_head == known["active_without_embedding_and_head"]
    assert count.mtp == known.get("mtp", 0)


@each
def test_weights_on_paper(public: PublicModel) -> None:
    plain = public.model.model_copy(update={"quantization": None, "torch_dtype": "bf16"})
    manifest = paper_manifest(plain)
    assert manifest.parameters == public.known["total"]
    assert manifest.stored_bytes == public.known["bytes_in_bf16"]
    positions = expected_tensors(plain).get(POSITIONS, (0, 0))
    assert positions[0] * positions[1] == public.known.get("positions", 0)


@each
def test_experts(public: PublicModel) -> None:
    layers = [one.mlp for one in public.model.layers if one.mlp.kind == "experts"]
    known = public.known.get("experts")
    if known is None:
        assert not layers
        return
    assert len(layers) == known["layers"]
    assert {one.num_experts for one in layers} == {known["per_layer"]}
    assert {one.experts_per_token for one in layers} == {known["per_token"]}
    assert expert_parameters(public.model, layers[0]) == known["parameters_each"]
    assert count_parameters(public.model).routed_experts == known["parameters_all"]


@each
def test_cache(public: PublicModel) -> None:
    model, known = public.model, public.known["kv"]
    assert kv_bytes_per_token(model, BF16) == known["bytes_per_token"]
    for dtype in ("fp8", "q8_0"):
        number = kv_bytes_per_number(dtype, model.head_dim)
        assert kv_bytes_per_token(model, number) == known[dtype]
    caching = [cached_numbers(one.attention) for one in model.layers]
    assert {2 * numbers for numbers in caching if numbers} == {known["per_layer"]}
    assert sum(1 for numbers in caching if numbers) == known["layers"]
    for tokens, expected in known["at"].items():
        assert kv_bytes_at(model, int(tokens), BF16) == expected


@each
def test_windows(public: PublicModel) -> None:
    model, known = public.model, public.known["kv"].get("window")
    windows = [one.attention.window for one in model.layers if one.attention.kind == "softmax"]
    if known is None:
        assert not any(windows)
        return
    assert [one for one in windows if one] == [known["tokens"]] * known["layers"]
    long = 2 * known["tokens"]
    growth = kv_bytes_at(model, long + 1, BF16) - kv_bytes_at(model, long, BF16)
    assert growth == known["growth_beyond"]
    for tokens, expected in known["every_layer_in_full_at"].items():
        allocated = KvConvention.ENGINE_ALLOCATED
        assert kv_bytes_at(model, int(tokens), BF16, convention=allocated) == expected


@each
def test_states(public: PublicModel) -> None:
    model, known = public.model, public.known["kv"].get("state", {})
    linear = [one.attention for one in model.layers if one.attention.kind == "linear"]
    assert len(linear) == known.get("layers", 0)
    assert state_bytes_per_sequence(model) == known.get("bytes", 0)
    if linear:
        fewer = linear[0].conv_kernel - 1
        found = state_bytes_per_sequence(model, conv_columns_kept=fewer)
        assert found == known["bytes_one_column_fewer"]


@pytest.mark.parametrize(
    "public",
    [one for one in PUBLIC_MODELS if "flops" in one.known],
    ids=lambda one: one.name.split("/")[1],
)
def test_flops(public: PublicModel) -> None:
    known = public.known["flops"]
    last, every = step(public, 512, 0, 1), step(public, 512, 0, 512)
    assert every.flops_dense == known["prefill_512_all"]
    assert last.flops_dense == known["prefill_512_last"]
    assert last.flops_causal == known["prefill_512_last_causal"]
    decode, longer = step(public, 1, 512, 1), step(public, 1, 513, 1)
    assert decode.flops_causal == decode.flops_dense == known["decode_at_512"]
    assert decode.flops == known.get("decode_at_512_within_windows", decode.flops)
    assert longer.flops_dense - decode.flops_dense == known["per_pair"]
    assert step(public, 1, 0, 1).flops_dense - step(public, 1, 0, 0).flops_dense == known["head"]
    assert step(public, 1, 0, 0).flops_dense - known["per_pair"] == known["per_token_in_layers"]


def step(public: PublicModel, new: int, cached: int, rows: int) -> StepCost:
    model = public.model
    shape = StepShape(
        phase=Phase.DECODE if new == 1 else Phase.PREFILL,
        sequences=(SequenceShape(new_tokens=new, cached_tokens=cached),),
        logit_rows=rows,
    )
    return step_cost(model, paper_manifest(model), shape, CostOptions())


def test_checkpoint_bytes_of_packed_experts() -> None:
    (public,) = (one for one in PUBLIC_MODELS if "checkpoint_bytes" in one.known)
    manifest = paper_manifest(public.model)
    assert manifest.stored_bytes == public.known["checkpoint_bytes"]
    packed = [one.parameters for one in manifest.tensors if one.stored_dtype == "mxfp4"]
    assert sum(packed) == public.known["packed_weights"]
