from typing import Any

import pytest
import torch

from llmprof.costs.memory import MemoryNeed
from llmprof.engine.engine import Engine
from llmprof.engine.memory import check_memory, out_of_memory_explained, predicted_memory
from llmprof.errors import CapabilityError, MeasurementFailedError
from tests.published import LLAMA_3_1_8B
from tests.tiny_decoders import on_paper, settings

LONG = settings(workload={"prompt_tokens": 8000, "output_tokens": 192, "batch": 4})
TWO_AT_ONCE: dict[str, Any] = {
    "workload": {
        "kind": "trace",
        "requests": 3,
        "lengths": {"prompt": {"mean": 100}, "output": {"mean": 20}},
    },
    "batching": {"policy": "static", "max_sequences": 2},
}
WEIGHT_BYTES = 8_030_261_248 * 2
KV_BYTES = 4 * 8192 * 131_072
"""Sequences, tokens, bytes per token."""
NUMBERS = 4096 + 2 * 128 + 4096 + (4096 + 2 * 1024) + 3 * 14336
"""Of a token in the feed forward, the largest moment: residual stream, rotations, projected
output, queries with keys and values, then gate, up and their product."""


def test_the_prediction() -> None:
    need = predicted_memory(LLAMA_3_1_8B, LONG, "bf16")
    assert need.weight_bytes == WEIGHT_BYTES
    assert need.kv_bytes == KV_BYTES
    assert need.activation_bytes == 4 * 8000 * 2 * NUMBERS


def test_a_filled_cache_needs_no_prefill() -> None:
    synthetic = settings(
        workload={"prompt_tokens": 8000, "output_tokens": 192, "batch": 4, "context": "synthetic"}
    )
    need = predicted_memory(LLAMA_3_1_8B, synthetic, "bf16")
    assert need.kv_bytes == KV_BYTES
    assert need.activation_bytes < 4 * 2**20


@pytest.mark.parametrize(
    ("kv", "number_bytes"), [({"dtype": "int8"}, 1 + 4 / 128), ({"dtype": "fp8"}, 1)]
)
def test_a_cache_of_fewer_bits_needs_less(kv: dict[str, str], number_bytes: float) -> None:
    config = LONG.model_copy(update={"kv_cache": settings(kv_cache=kv).kv_cache})
    need = predicted_memory(LLAMA_3_1_8B, config, "bf16")
    assert need.kv_bytes == KV_BYTES / 2 * number_bytes


def test_serving_reserves_a_store_and_computes_at_most_a_step() -> None:
    """64 requests of 512 + 128 tokens, 16 at once, in blocks of 16, with a budget or without."""
    groups: dict[str, dict[str, object]] = {
        "workload": {"batch": 64, "prompt_tokens": 512, "output_tokens": 128},
        "batching": {"policy": "continuous", "max_sequences": 16, "max_step_tokens": 256},
    }
    paged = settings(kv_cache={"layout": "paged"}, **groups)
    need = predicted_memory(LLAMA_3_1_8B, paged, "bf16")
    assert need.kv_bytes == 16 * 40 * 16 * 131_072
    mask = 256 * 639  # of the last piece; the last of 640 tokens is never attended to
    assert need.activation_bytes == 256 * 2 * NUMBERS + mask
    budget = {"layout": "paged", "memory_bytes": 2**30}
    limited = predicted_memory(LLAMA_3_1_8B, settings(kv_cache=budget, **groups), "bf16")
    assert limited.kv_bytes == 2**30


@pytest.mark.parametrize(("layout", "tokens"), [("paged", 16), ("contiguous", 639)])
def test_rows_that_pad_a_graph_have_a_block_of_their_own(layout: str, tokens: int) -> None:
    """As long as every other one: of a contiguous cache that is a whole sequence more."""
    groups: dict[str, dict[str, object]] = {
        "workload": {"batch": 64, "prompt_tokens": 512, "output_tokens": 128},
        "batching": {"policy": "continuous", "max_sequences": 16, "max_step_tokens": 256},
    }
    eager, graphs = (
        settings(kv_cache={"layout": layout}, execution={"mode": mode}, **groups)
        for mode in ("eager", "cuda_graph")
    )
    needs = [predicted_memory(LLAMA_3_1_8B, config, "bf16").kv_bytes for config in (eager, graphs)]
    assert needs[1] - needs[0] == tokens * 131_072


def test_served_sequences_are_gathered_where_attention_needs_a_plain_array() -> None:
    """64 sequences of 4,095 tokens decode with standard attention: 4,096 tokens of each are copied out
    of their blocks, beside two score buffers of whole 2^18 numbers, and queries, keys, values and
    outputs with the parts that are put together."""
    config = settings(
        attention={"kind": "standard"},
        kv_cache={"layout": "paged"},
        workload={"batch": 64, "prompt_tokens": 4000, "output_tokens": 96},
        batching={"policy": "continuous", "max_sequences": 64, "max_step_tokens": 256},
    )
    need = predicted_memory(LLAMA_3_1_8B, config, "bf16")
    gathered = 64 * 4096 * 2 * 1024 * 2
    scores = 2 * 2 * 32 * 2**18  # 32 heads x 64 x 4,095 are 8,386,560 numbers, 8,388,608 with room
    of_tokens = 64 * 2 * (4096 + 2 * 128 + 4096 + 2 * 1024 + 4096 + 2 * 4096)
    assert need.activation_bytes == gathered + scores + of_tokens


def test_scores_of_served_prompts_are_made_one_prompt_after_the_other() -> None:
    """8 of 1,000 tokens: of one prompt 32 heads x 1,000 x 1,000 numbers, in whole 2^18 of them."""
    needs = {}
    for layout in ("contiguous", "paged"):
        config = settings(
            attention={"kind": "standard"},
            kv_cache={"layout": layout},
            workload={
                "kind": "trace",
                "requests": 8,
                "lengths": {"prompt": {"mean": 1000}, "output": {"mean": 2}},
            },
            batching={"policy": "static", "max_sequences": 8},
        )
        needs[layout] = predicted_memory(LLAMA_3_1_8B, config, "bf16").activation_bytes
    scores, masks = 2 * 2 * 123 * 2**18, 8 * 2 * 1000**2
    assert needs == dict.fromkeys(needs, 8 * 1000 * 2 * NUMBERS + scores + masks)


def test_a_served_batch_without_a_cache_computes_its_longest_context_in_the_end() -> None:
    """Of two requests at once 100 prompt tokens and 20 of output, the last of which is never read."""
    config = settings(kv_cache={"layout": "none"}, **TWO_AT_ONCE)
    need = predicted_memory(LLAMA_3_1_8B, config, "bf16")
    assert need.activation_bytes == 2 * 119 * 2 * NUMBERS


def test_a_padded_batch_is_prefilled_at_once() -> None:
    config = settings(**TWO_AT_ONCE)
    need = predicted_memory(LLAMA_3_1_8B, config, "bf16")
    assert need.activation_bytes == 2 * 100 * 2 * NUMBERS
    assert need.kv_bytes == 2 * 119 * 131_072


def test_what_cannot_fit_is_refused_with_the_numbers() -> None:
    need = predicted_memory(LLAMA_3_1_8B, LONG, "bf16")
    enough = int(need.total_bytes)
    check_memory(need, name="big", device="cpu", host_available_bytes=enough)
    with pytest.raises(CapabilityError) as caught:
        check_memory(need, name="big", device="cpu", host_available_bytes=2**30)
    line = caught.value.line()
    for part in ("big needs 22.4 GiB on cpu", "15.0 GiB weights", "4.00 GiB KV", "1.00 GiB is"):
        assert part in line


def test_a_refusal_says_what_cache_would_fit_beside_other_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a GPU of 24 GiB others hold 4: 20 are left, and 19 of them after weights and activations."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (20 * 2**30, 24 * 2**30))
    need = MemoryNeed(weight_bytes=0.5 * 2**30, kv_bytes=30 * 2**30, activation_bytes=0.5 * 2**30)
    with pytest.raises(CapabilityError) as caught:
        check_memory(need, name="big", device="cuda:0", host_available_bytes=0)
    assert "a KV cache of 19.0 GiB would fit" in caught.value.line()
    crowded = MemoryNeed(weight_bytes=22 * 2**30, kv_bytes=1, activation_bytes=0)
    with pytest.raises(CapabilityError) as caught:
        check_memory(crowded, name="big", device="cuda:0", host_available_bytes=0)
    assert "would fit" not in caught.value.line()


def test_nothing_is_loaded_that_cannot_fit() -> None:
    config = settings(weights={"source": "random"})
    with pytest.raises(CapabilityError, match=r"llama-3\.1-8b needs"):
        Engine.load(
            on_paper(LLAMA_3_1_8B), config, device="cpu", threads=1, host_available_bytes=2**30
        )


def test_running_out_is_one_line() -> None:
    with (
        pytest.raises(MeasurementFailedError, match="out of memory while testing"),
        out_of_memory_explained("testing"),
    ):
        torch.empty(2**62, dtype=torch.int8)


def test_a_gpu_that_runs_out_is_one_line() -> None:
    with (
        pytest.raises(MeasurementFailedError, match="out of memory"),
        out_of_memory_explained("testing"),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_other_errors_pass_through() -> None:
    with pytest.raises(RuntimeError, match="size mismatch"), out_of_memory_explained("testing"):
        raise RuntimeError("size mismatch")
