import pytest

from llmprof.engine.capabilities import (
    check_capabilities,
    check_length,
    check_prompt,
    check_workload,
)
from llmprof.errors import CapabilityError, InputError
from tests.published import decoder
from tests.tiny_decoders import settings

MODEL = decoder("small", 2, 32, 48, 4, 2, 50, context=64)


def test_what_the_engine_has_passes() -> None:
    for kind in ("standard", "flash"):
        for layout in ("none", "contiguous"):
            config = settings(attention={"kind": kind}, kv_cache={"layout": layout})
            check_capabilities(config)
            check_workload(config, MODEL)


@pytest.mark.parametrize(
    ("group", "key", "value"),
    [
        *(("weights", "quantization", value) for value in ("int8", "int4", "fp8")),
        ("weights", "group_size", 64),
        ("kv_cache", "layout", "paged"),
        ("kv_cache", "dtype", "int8"),
        ("kv_cache", "dtype", "fp8"),
        ("kv_cache", "memory_bytes", 1024),
        ("batching", "policy", "continuous"),
        ("execution", "mode", "compiled"),
        ("execution", "mode", "cuda_graph"),
        ("parallel", "tensor", 2),
        ("workload", "kind", "trace"),
    ],
)
def test_what_it_has_not_is_refused_by_name(group: str, key: str, value: object) -> None:
    with pytest.raises(CapabilityError, match=rf"^{group}\.{key}={value} is not available"):
        check_capabilities(settings(**{group: {key: value}}))


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


def test_prompts() -> None:
    check_prompt(MODEL, [0, 49])
    with pytest.raises(InputError, match="no tokens"):
        check_prompt(MODEL, [])
    with pytest.raises(InputError, match=r"id 50.*vocabulary of 50"):
        check_prompt(MODEL, [3, 50])
