import pytest

from llmprof.engine.capabilities import (
    check_attention,
    check_capabilities,
    check_fused,
    check_length,
    check_prompt,
    check_trace,
    check_weights,
    check_workload,
)
from llmprof.engine.kernels import fused, packed
from llmprof.engine.request_trace import Request
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.settings import Quantization, RunConfig, WeightsSettings
from tests.published import decoder
from tests.tiny_decoders import settings

MODEL = decoder("small", 2, 32, 48, 4, 2, 50, context=64)


def test_what_the_engine_has_passes() -> None:
    for kind in ("standard", "flash"):
        for layout in ("none", "contiguous", "paged"):
            for policy in ("static", "continuous"):
                for work in ("fixed", "trace"):
                    config = settings(
                        attention={"kind": kind},
                        kv_cache={"layout": layout},
                        batching={"policy": policy},
                        workload={"kind": work},
                    )
                    check_capabilities(config)
                    check_workload(config, MODEL)


def test_one_process_does_not_share_out_a_model() -> None:
    with pytest.raises(CapabilityError, match=r"^parallel\.tensor=2 is for `llmprof run` alone"):
        check_capabilities(settings(parallel={"tensor": 2}))


@pytest.mark.parametrize(
    "other",
    [
        {"execution": {"mode": "cuda_graph"}},
        {"weights": {"group_size": "channel"}},
        {"workload": {"kind": "trace", "arrival_rate_per_s": 1.0}},
        {"measure": {"confirm": True}},
        {"device": "cuda:0"},
    ],
)
def test_ranks_refuse_what_they_cannot_do_together(other: dict[str, object]) -> None:
    config = settings(parallel={"tensor": 2})
    check_capabilities(config, ranks=2)
    changed = RunConfig.model_validate(config.model_dump() | other)
    with pytest.raises(CapabilityError, match=r"^with parallel\.tensor=2, "):
        check_capabilities(changed, ranks=2)


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_packed_weights_are_read_where_a_kernel_runs(
    quantization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = WeightsSettings(quantization=Quantization(quantization))
    check_weights(weights, "cpu")
    monkeypatch.setattr(packed, "triton_trouble", lambda device: None)
    check_weights(weights, "cuda:0")
    monkeypatch.setattr(packed, "triton_trouble", lambda device: "the package triton is missing")
    refusal = f"{quantization} is not available on cuda:0: the package triton is missing"
    with pytest.raises(CapabilityError, match=refusal):
        check_weights(weights, "cuda:0")


def test_fp8_weights_have_a_scale_per_channel_and_nothing_else() -> None:
    check_weights(WeightsSettings(quantization=Quantization.FP8), "cpu")
    check_weights(WeightsSettings(quantization=Quantization.FP8, group_size="channel"), "cpu")
    with pytest.raises(InputError, match="fp8 weights have one scale per output channel"):
        check_weights(WeightsSettings(quantization=Quantization.FP8, group_size=32), "cpu")


@pytest.mark.parametrize("backend", ["varlen", "flashinfer"])
def test_libraries_of_gpu_attention_are_refused_on_a_cpu(backend: str) -> None:
    asked = settings(attention={"backend": backend})
    check_attention(asked, "cuda:0")
    with pytest.raises(
        CapabilityError, match=f"attention.backend={backend} is not available on cpu"
    ):
        check_attention(asked, "cpu")
    check_attention(settings(attention={"backend": "native"}), "cpu")
    both = settings(attention={"backend": backend}, execution={"mode": "compiled"})
    with pytest.raises(
        CapabilityError, match=f"backend={backend} is not available with execution.mode=compiled"
    ):
        check_attention(both, "cuda:0")


def test_fused_kernels_are_refused_where_they_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` and `off` go everywhere."""
    on = settings(execution={"fused": "on"})
    for value in ("auto", "off"):
        check_fused(settings(execution={"fused": value}), "bf16", "cpu")
    with pytest.raises(
        CapabilityError, match="fused=on is not available: its kernels are made for"
    ):
        check_fused(on, "bf16", "cpu")
    monkeypatch.setattr(fused, "runs_triton", lambda device: True)
    check_fused(on, "bf16", "cuda:0")
    with pytest.raises(CapabilityError, match="several rows in fp32"):
        check_fused(on, "fp32", "cuda:0")
    both = settings(execution={"fused": "on", "mode": "compiled"})
    with pytest.raises(CapabilityError, match="what lies between products by itself"):
        check_fused(both, "bf16", "cuda:0")
    monkeypatch.setattr(fused, "runs_triton", lambda device: False)
    monkeypatch.setattr(fused, "triton_trouble", lambda device: "the package triton is missing")
    with pytest.raises(CapabilityError, match="not available: the package triton is missing"):
        check_fused(on, "bf16", "cuda:0")


@pytest.mark.parametrize(
    ("settings", "belongs_to"),
    [
        (WeightsSettings(group_size=64), "belongs to quantized weights"),
        (WeightsSettings(symmetric=True), "belongs to int4, and weights.quantization is none"),
        (WeightsSettings(quantization=Quantization.INT8, symmetric=True), "belongs to int4"),
        (WeightsSettings(quantization=Quantization.INT4, group_size="channel"), "needs 8 bits"),
    ],
)
def test_a_setting_of_another_weight_format_is_refused(
    settings: WeightsSettings, belongs_to: str
) -> None:
    with pytest.raises(InputError, match=belongs_to):
        check_weights(settings, "cpu")


def test_the_context_is_the_limit_of_prompt_and_output_together() -> None:
    check_length(MODEL, 60, 4)
    with pytest.raises(InputError, match=r"60 prompt tokens and 5 output tokens are 65.*64 pos"):
        check_length(MODEL, 60, 5)


def test_a_synthetic_context_needs_a_cache_and_a_decode_step() -> None:
    synthetic = {"context": "synthetic", "prompt_tokens": 8, "output_tokens": 2}
    check_workload(settings(workload=synthetic), MODEL)
    with pytest.raises(InputError, match="none has none"):
        check_workload(settings(workload=synthetic, kv_cache={"layout": "none"}), MODEL)
    with pytest.raises(InputError, match="single output token"):
        check_workload(settings(workload={**synthetic, "output_tokens": 1}), MODEL)


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ({"kv_cache": {"layout": "none", "dtype": "int8"}}, "kv_cache.dtype=int8 needs a cache"),
        ({"kv_cache": {"layout": "none", "memory_bytes": 9}}, "memory_bytes needs a cache"),
        (
            {"workload": {"kind": "trace"}, "measure": {"steps_per_round": 4}},
            "steps_per_round cuts fixed work",
        ),
        (
            {"batching": {"policy": "continuous", "max_sequences": 9, "max_step_tokens": 8}},
            "max_step_tokens=8 is less than one token for each of batching.max_sequences=9",
        ),
        (
            {"workload": {"context": "synthetic"}, "batching": {"policy": "continuous"}},
            "requests start with a prompt",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    groups: dict[str, dict[str, object]], problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        check_workload(settings(**groups), MODEL)
    assert problem in caught.value.line()
    assert caught.value.remedy


def test_a_request_beyond_the_context_is_named() -> None:
    trace = [Request(0, 0.0, 32, 32), Request(1, 0.0, 60, 5)]
    check_trace(MODEL, trace[:1])
    with pytest.raises(InputError, match=r"request 1 of the trace has 65 tokens.* 64 positions"):
        check_trace(MODEL, trace)


def test_prompts() -> None:
    check_prompt(MODEL, [0, 49])
    with pytest.raises(InputError, match="no tokens"):
        check_prompt(MODEL, [])
    with pytest.raises(InputError, match=r"id 50.*vocabulary of 50"):
        check_prompt(MODEL, [3, 50])
