"""Plans of public models against sums done by hand."""

from dataclasses import replace
from typing import Any

import pytest

from llmprof.architectures.source import ModelSource, resolve_model
from llmprof.errors import InputError
from llmprof.planning.capacity import Capacity
from llmprof.planning.plan import PlanRequest, default_contexts, make_capacity, make_plan
from llmprof.planning.plan_words import plan_caveats
from llmprof.schema.measurement import Source
from llmprof.schema.plan import DecodeBound, Plan, PlanEffect, PlanRates
from llmprof.schema.run import Tool
from llmprof.schema.settings import BatchingPolicy, RunConfig

GIB = 2**30
TOOL = Tool(version="0", argv=("llmprof", "plan"))
RATES = PlanRates(
    name="a device",
    read_bytes_per_s=2e12,
    flops_per_s={"bf16": 4e14},
    source=Source.DATASHEET,
    document="sheet",
)
LLAMA_8B = "llama-3.1-8b"
LLAMA_8B_BYTES = 2 * 8_030_261_248


def config(model: str = LLAMA_8B, **groups: object) -> RunConfig:
    return RunConfig.model_validate({"model": model, **groups})


def source(model: str = LLAMA_8B) -> ModelSource:
    return resolve_model(model)


def request(gib: float = 80, **changes: object) -> PlanRequest:
    known: dict[str, object] = {
        "device_bytes": round(gib * GIB),
        "device_source": Source.ASSUMED,
        "reserve_bytes": 0,
    }
    return PlanRequest(**(known | changes))  # type: ignore[arg-type]


def plan(asked: PlanRequest, settings: RunConfig | None = None) -> Plan:
    settings = settings or config()
    return make_plan(source(settings.model), settings, asked, tool=TOOL)


def effect(found: Plan, change: str) -> PlanEffect:
    return next(one for one in found.effects if one.change == change)


def test_the_example_that_everyone_quotes() -> None:
    found = plan(request(141, contexts=(131_072,)), config("llama-3.1-70b"))
    (point,) = found.by_context
    assert point.sequence_bytes == 40 * GIB
    assert found.context_formula == (
        "2 (K and V) x 80 layers x 8 KV heads x 128 head dim x 2 bytes x 131,072 tokens x "
        "1 sequence = 42,949,672,960 bytes"
    )
    assert point.sequences == 0  # the weights alone take 141.1 GB of 151.4
    assert not point.fits


def test_the_formula_of_a_context_is_what_the_sum_takes() -> None:
    """Gemma 2 9B: the engine keeps what windows no longer see, so 42 layers hold all 8192 tokens."""
    found = plan(request(80, contexts=(8192,)), config("gemma-2-9b"))
    whole = 2 * 42 * 8 * 256 * 2 * 8192
    assert found.by_context[0].sequence_bytes == whole
    assert found.context_formula.endswith(f"8,192 tokens x 1 sequence = {whole:,} bytes")
    paged = plan(request(80, contexts=(100,)), config(kv_cache={"layout": "paged"}))
    blocks = 2 * 32 * 8 * 128 * 2 * 7 * 16
    assert paged.by_context[0].sequence_bytes == blocks
    assert f"112 tokens (whole blocks) x 1 sequence = {blocks:,} bytes" in paged.context_formula


def test_sequences_that_fit_by_hand() -> None:
    """Activations are those of the feed forward: beside residual and rotations its output,
    gate, up and product, the heads that attention has just read, and the mask of the last piece of
    a prompt."""
    found = plan(request(80, contexts=(8192,)))
    activations = 2 * 2048 * (4096 + 2 * 128 + 4096 + 3 * 14336 + 48 * 128) + 2048 * 8192
    room = 80 * GIB - LLAMA_8B_BYTES - activations
    assert found.memory.kv_room_bytes == room
    assert found.by_context[0].sequences == room // GIB == 64
    assert "= 64 sequences" in found.capacity_formula


def test_one_more_never_fits() -> None:
    asked = request(24)
    for settings in (config(), config(kv_cache={"layout": "paged", "dtype": "int8"})):
        capacity = make_capacity(source(), settings, asked)
        for tokens in (1, 17, 1000, 131_072):
            most = capacity.most_sequences(tokens)
            assert most == 0 or capacity.fits(most, tokens)
            assert not capacity.fits(most + 1, tokens)
        for sequences in (1, 3, 50):
            longest = capacity.longest_context(sequences)
            assert longest == 131_072 or not capacity.fits(sequences, longest + 1)
            assert longest == 0 or capacity.fits(sequences, longest)


def test_static_batches_hold_the_activations_of_all_prompts() -> None:
    chunked = make_capacity(source(), config(), request())
    static = make_capacity(source(), config(), request(policy=BatchingPolicy.STATIC))
    mask = 2048 * 8192  # of the last piece of a prompt, which follows cached tokens
    assert chunked.activation_bytes(8, 8192) == chunked.activation_bytes(8, 2048) + mask
    assert chunked.activation_bytes(8, 256) == chunked.activation_bytes(1, 2048)  # eight at once
    assert static.activation_bytes(8, 8192) == 32 * chunked.activation_bytes(1, 2048)


def test_a_sum_that_does_not_divide_says_what_ends_it() -> None:
    """Of 24 GiB the weights leave 9,709,281,280 bytes. A whole prompt of 8,192 tokens takes 57,600
    numbers of 2 bytes each, 943,718,400 in all, beside 1 GiB of cache: four fit. What four leave for
    the cache would hold a fifth one's, but not its prompt."""
    found = plan(request(24, contexts=(8192,), policy=BatchingPolicy.STATIC))
    assert found.by_context[0].sequences == 4
    assert found.capacity_formula.endswith(
        "- 3,774,873,600 activations = 5,934,407,680 bytes for the cache: 4 sequences of 8,192 "
        "tokens take 1,073,741,824 each, and one more would take the activations to 4,718,592,000"
    )


def test_flashinfer_has_a_workspace_where_it_attends_to_a_cache() -> None:
    def activations(**groups: Any) -> float:
        capacity = make_capacity(source(), config(**groups), request())
        return capacity.activation_bytes(1, 1024)

    flashinfer, standard = {"backend": "flashinfer"}, {"kind": "standard"}
    assert activations(attention=flashinfer) - activations() == 128 * 2**20
    idle = activations(attention=standard | flashinfer)
    assert idle == activations(attention=standard)
    none = {"layout": "none"}
    assert activations(kv_cache=none, attention=flashinfer) == activations(kv_cache=none)


@pytest.mark.parametrize(("layout", "tokens"), [("contiguous", 1024), ("paged", 16), ("none", 0)])
def test_rows_that_pad_a_graph_have_a_block_of_the_cache(layout: str, tokens: int) -> None:
    def activations(mode: str) -> float:
        settings = config(kv_cache={"layout": layout}, execution={"mode": mode})
        return make_capacity(source(), settings, request()).activation_bytes(1, 1024)

    assert activations("cuda_graph") - activations("eager") == tokens * 131_072


@pytest.mark.parametrize(("model", "said"), [("deepseek-v2-lite", True), (LLAMA_8B, False)])
def test_scales_that_are_approximate_are_said_to_be(model: str, said: bool) -> None:
    found = plan(request(80), config(model, kv_cache={"dtype": "int8"}))
    assert ("latent-scales" in {one.code for one in found.caveats}) is said


def test_scales_of_layers_with_larger_heads_are_said_to_be_fewer() -> None:
    wide = source().config
    (kind, _), *_ = wide.kinds
    larger = kind.attention.model_copy(update={"key_dim": 256, "value_dim": 256})
    kinds = (kind, kind.model_copy(update={"attention": larger}))
    model = wide.model_copy(update={"layer_kinds": kinds, "layer_pattern": (0, 1) * 16})
    asked = make_capacity(source(), config(kv_cache={"dtype": "int8"}), request())
    (caveat,) = plan_caveats(replace(asked, model=model), None)
    assert "per head dim of 128, which not every layer has" in caveat.message


def test_levers_change_what_they_name() -> None:
    found = plan(request(24, contexts=(8192,)))
    assert found.effects[0].sequence_bytes == GIB
    int8 = effect(found, "kv_cache.dtype=int8")
    assert int8.sequence_bytes == GIB // 2 * (1 + 4 / 128)  # a scale of 4 bytes per 128 numbers
    assert effect(found, "kv_cache.dtype=fp8").sequence_bytes == GIB // 2
    packed = effect(found, "weights.quantization=int4")
    assert packed.weight_bytes is not None
    assert 0.25 < packed.weight_bytes / LLAMA_8B_BYTES < 0.35
    two = effect(found, "parallel.tensor=2")
    assert two.sequence_bytes == GIB // 2
    assert all(one.sequences > found.effects[0].sequences for one in (int8, packed, two))  # type: ignore[operator]


def test_a_contiguous_cache_that_reserves_the_longest_context_holds_fewer() -> None:
    found = plan(request(80, contexts=(8192, 131_072)))
    reserved = effect(found, "contiguous, every sequence reserving 131,072 tokens")
    assert reserved.sequence_bytes == 16 * GIB
    assert reserved.sequences == 4
    assert [point.sequences for point in reserved.frontier] == [4, 4]


def test_windows_hold_less_where_a_cache_can_forget() -> None:
    found = plan(request(80, contexts=(32_768,)), config("gemma-3-27b"))
    dropped = next(one for one in found.effects if one.label == "windows drop")
    base = found.effects[0]
    assert dropped.sequence_bytes is not None
    assert base.sequence_bytes is not None
    assert dropped.sequence_bytes < base.sequence_bytes / 3


def test_decode_at_the_roof_by_hand() -> None:
    found = plan(request(80, contexts=(8192,), batches=(4,), rates=RATES, price_per_hour=3.6))
    (asked,) = found.asked
    decode = asked.decode
    assert decode is not None
    read_once = LLAMA_8B_BYTES - 2 * 525_336_576
    row, logits, per_token = 2 * 4096, 2 * 128_256, 131_072
    assert decode.read_bytes == read_once + 4 * (row + 8192 * per_token + logits)
    assert decode.bound is DecodeBound.MEMORY
    assert decode.step_s == decode.read_bytes / 2e12
    assert decode.cost_per_million_tokens == pytest.approx(1e6 * 0.001 * decode.step_s / 4)
    assert decode.source is Source.PREDICTED


@pytest.mark.parametrize(
    ("model", "devices", "whole", "each"),
    [
        ("llama-3.1-70b", 4, 2 * 80 * 8 * 128 * 2, 2 * 80 * 2 * 128 * 2),
        ("llama-3.1-70b", 16, 2 * 80 * 8 * 128 * 2, 2 * 80 * 1 * 128 * 2),  # a head on two devices
        ("deepseek-v3", 8, 61 * (512 + 64) * 2, 61 * (512 + 64) * 2),  # the latent whole on each
    ],
)
def test_formulas_say_what_each_of_several_devices_holds(
    model: str, devices: int, whole: int, each: int
) -> None:
    settings = config(model, parallel={"tensor": devices})
    found = plan(request(800, contexts=(1000,)), settings)
    assert found.kv_bytes_per_token == each
    assert (
        f"= {whole:,} bytes, of which each of {devices} devices holds {each:,}" in found.kv_formula
    )
    assert found.context_formula.endswith(f"{devices} devices holds {1000 * each:,}")
    assert "devices" not in plan(request(800, contexts=(1000,)), config(model)).kv_formula


def test_two_devices_read_half_each_and_are_both_paid() -> None:
    settings = config(parallel={"tensor": 2})
    asked = request(80, contexts=(8192,), batches=(4,), rates=RATES, price_per_hour=1.0)
    one, two = (plan(asked, each).asked[0].decode for each in (config(), settings))
    assert one is not None
    assert two is not None
    assert two.step_s == pytest.approx(one.step_s / 2, rel=1e-3)
    assert two.cost_per_million_tokens == pytest.approx(one.cost_per_million_tokens, rel=1e-3)


def test_two_devices_share_arithmetic_where_that_is_longer() -> None:
    """Llama 3.1 8B, one token at 8192: two products per weight, four per number that it attends to."""
    slow = RATES.model_copy(update={"read_bytes_per_s": 1e18, "flops_per_s": {"bf16": 1e12}})
    asked = request(80, contexts=(8192,), batches=(1,), rates=slow)
    matrices = 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336) + 128_256 * 4096
    flops = 2 * matrices + 4 * 32 * 4096 * 8192
    for devices in (1, 2):
        decode = plan(asked, config(parallel={"tensor": devices})).asked[0].decode
        assert decode is not None
        assert decode.bound is DecodeBound.COMPUTE
        assert decode.step_s == pytest.approx(flops / devices / 1e12)


def test_a_latent_is_read_whole_by_each_of_eight_devices() -> None:
    """DeepSeek V3: 61 layers of 512 + 64 numbers a token, however many share its heads."""
    settings = config("deepseek-v3", parallel={"tensor": 8})
    asked = request(800, contexts=(1000, 2000), batches=(1,), rates=RATES)
    short, long = (one.decode for one in plan(asked, settings).asked)
    assert short is not None
    assert long is not None
    assert long.read_bytes - short.read_bytes == pytest.approx(1000 * 61 * 576 * 2)


def test_states_of_linear_layers_are_shared_out_like_heads() -> None:
    """Qwen3 Next: 77,856,768 bytes of states a sequence, and 24,576 bytes a token."""
    for devices in (1, 2):
        settings = config("qwen3-next-80b-a3b", parallel={"tensor": devices})
        (point,) = plan(request(400, contexts=(1000,)), settings).by_context
        assert point.sequence_bytes == (77_856_768 + 1000 * 24_576) / devices


def test_an_unknown_compute_rate_is_said_and_not_guessed() -> None:
    unknown = RATES.model_copy(update={"flops_per_s": {}})
    found = plan(request(80, contexts=(8192,), batches=(1,), rates=unknown))
    assert "no-compute-roof" in {caveat.code for caveat in found.caveats}
    decode = found.asked[0].decode
    assert decode is not None
    assert (decode.bound, decode.step_s) == (DecodeBound.MEMORY, decode.read_bytes / 2e12)
    assert "no-compute-roof" not in {c.code for c in plan(request(80, rates=RATES)).caveats}


def test_a_family_without_an_even_split_says_so_and_the_plan_stands() -> None:
    found = plan(request(24), config("smollm2-135m"))
    split = effect(found, "parallel.tensor=2")
    assert split.sequences is None
    assert "9 heads" in (split.reason or "")


def test_what_cannot_be_planned_is_refused() -> None:
    with pytest.raises(InputError, match="131,072 positions"):
        plan(request(contexts=(200_000,)))
    with pytest.raises(InputError, match="leaves nothing"):
        plan(request(1, reserve_bytes=GIB))


def test_default_contexts_end_at_the_positions() -> None:
    assert default_contexts(100) == (1, 2, 4, 8, 16, 32, 64, 100)
    assert default_contexts(131_072)[-2:] == (65_536, 131_072)
    assert default_contexts(131_072)[0] == 1024


def test_capacity_without_a_cache_computes_everything_again() -> None:
    settings = config(kv_cache={"layout": "none"})
    capacity: Capacity = make_capacity(source(), settings, request())
    assert capacity.sequence_bytes(1000) == 0
    assert capacity.activation_bytes(2, 1000) == 2 * capacity.activation_bytes(1, 1000)
