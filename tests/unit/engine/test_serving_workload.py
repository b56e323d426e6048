"""A trace served by the engine: the same tokens as one by one, whatever is shared or taken away."""

from typing import Any

import pytest
import torch

from llmprof.engine.engine import Engine
from llmprof.engine.open_workload import open_workload
from llmprof.engine.probe import NullProbe
from llmprof.engine.serving_workload import ServingWorkload
from llmprof.schema.cost import Phase
from tests.published import decoder
from tests.tiny_decoders import on_paper, settings

MODEL = decoder("small", 2, 32, 48, 4, 2, 50, context=256)
BLOCK_BYTES = 2 * 2 * 2 * 8 * 4 * 16
"""K and V, layers, KV heads, head_dim, fp32, tokens in a block."""
SURE_MARGIN = 1e-3
"""Between the two best logits: below it, rounding may decide."""


class MarginSampler:
    """Greedy, and remembers by how much each choice was the best."""

    kernel = "torch.topk"

    def __init__(self) -> None:
        self.margins: list[float] = []

    def __call__(self, logits: torch.Tensor, out: torch.Tensor) -> None:
        best = logits.float().topk(2, dim=-1)
        self.margins += (best.values[:, 0] - best.values[:, 1]).tolist()
        out.copy_(best.indices[:, :1])


def serving(**groups: dict[str, Any]) -> ServingWorkload:
    config = settings(weights={"source": "random", "dtype": "fp32"}, **groups)
    engine = Engine.load(
        on_paper(MODEL), config, device="cpu", threads=1, host_available_bytes=2**33
    )
    work = open_workload(engine, config)
    assert isinstance(work, ServingWorkload)
    return work


def sure_outputs(work: ServingWorkload) -> list[list[int]]:
    """Each request alone, up to the first choice that is not sure."""
    outputs = []
    for request, ids in zip(work.trace, work.ids, strict=True):
        sampler = MarginSampler()
        prompt = ids[: request.prompt_tokens].tolist()
        found = work.engine.generate(prompt, sampler, max_tokens=request.output_tokens).ids
        unsure = [i for i, margin in enumerate(sampler.margins) if margin < SURE_MARGIN]
        outputs.append(list(found[: unsure[0] if unsure else None]))
    return outputs


def check_outputs(work: ServingWorkload, expected: list[list[int]]) -> None:
    for request, ids, sure in zip(work.trace, work.ids, expected, strict=True):
        output = ids[request.prompt_tokens :].tolist()
        assert len(output) == request.output_tokens
        assert output[: len(sure)] == sure


def trace(requests: int, longest_prompt: int, longest_output: int) -> dict[str, Any]:
    return {
        "kind": "trace",
        "requests": requests,
        "seed": 3,
        "lengths": {
            "prompt": {"kind": "uniform", "low": 1, "high": longest_prompt},
            "output": {"kind": "uniform", "low": 1, "high": longest_output},
        },
    }


def test_fifty_requests_with_preemption_forced_equal_those_run_one_by_one() -> None:
    work = serving(
        workload=trace(50, 40, 48),
        kv_cache={"layout": "paged", "block_tokens": 8, "memory_bytes": 10 * BLOCK_BYTES},
        batching={"policy": "continuous", "max_sequences": 8, "max_step_tokens": 48},
    )
    expected = sure_outputs(work)
    digest = work.run_round(NullProbe())
    details = work.round_details()
    check_outputs(work, expected)
    assert sum(map(len, expected)) > 0.9 * sum(one.output_tokens for one in work.trace)
    assert len(set(map(tuple, expected))) > 20
    assert sum(request.preemptions for request in details.requests) >= 10
    assert {event.kind for event in details.events} == {"preempted"}
    assert work.phases == (Phase.PREFILL, Phase.DECODE, Phase.MIXED)
    assert work.run_round(NullProbe()) == digest
    assert work.round_details().steps == details.steps


@pytest.mark.parametrize("policy", ["static", "continuous"])
@pytest.mark.parametrize("layout", ["none", "contiguous", "paged"])
@pytest.mark.parametrize("kind", ["standard", "flash"])
def test_every_switch_gives_the_tokens_of_one_by_one(kind: str, layout: str, policy: str) -> None:
    work = serving(
        workload=trace(9, 30, 10),
        attention={"kind": kind},
        kv_cache={"layout": layout},
        batching={"policy": policy, "max_sequences": 4, "max_step_tokens": 64},
    )
    expected = sure_outputs(work)
    work.run_round(NullProbe())
    check_outputs(work, expected)


@pytest.mark.parametrize("kv_dtype", ["int8", "fp8"])
@pytest.mark.parametrize("layout", ["contiguous", "paged"])
def test_a_cache_of_fewer_bits_is_served_too(layout: str, kv_dtype: str) -> None:
    """Its tokens may differ from those of the model's dtype; those of two rounds may not."""
    work = serving(
        workload=trace(6, 30, 8),
        kv_cache={"layout": layout, "dtype": kv_dtype},
        batching={"policy": "continuous", "max_sequences": 3, "max_step_tokens": 16},
    )
    assert work.run_round(NullProbe()) == work.run_round(NullProbe())
    number = 1 + (4 / 8 if kv_dtype == "int8" else 0)
    assert work.describe().kv_bytes_per_token == 2 * 2 * 2 * 8 * number


def test_what_a_round_tells_about_its_requests_and_steps() -> None:
    work = serving(
        workload=trace(7, 40, 9),
        kv_cache={"layout": "paged"},
        batching={"policy": "continuous", "max_sequences": 3, "max_step_tokens": 32},
    )
    work.run_round(NullProbe())
    details = work.round_details()
    assert all(request.outcome == "finished" for request in details.requests)
    for request in details.requests:
        assert len(request.token_steps) == request.output_tokens
        assert list(request.token_steps) == sorted(set(request.token_steps))
        assert request.first_step is not None
        assert request.first_step <= request.token_steps[0]
        assert request.queue_s is not None
    for use in details.steps:
        assert use.batch is not None
        assert use.kv is not None
        assert use.batch.running + use.batch.slots_idle >= 3
        assert 0 <= use.kv.wasted_bytes < 3 * BLOCK_BYTES
        assert use.kv.reserved_bytes == use.kv.blocks_held * BLOCK_BYTES
    last = details.steps[-1].batch
    assert last is not None
    assert (last.waiting, last.padding_tokens) == (0, 0)


def test_static_batches_count_their_padding() -> None:
    work = serving(
        workload=trace(6, 40, 9),
        batching={"policy": "static", "max_sequences": 3},
    )
    work.run_round(NullProbe())
    padding = sum(use.batch.padding_tokens for use in work.round_details().steps if use.batch)
    batches = [work.trace[:3], work.trace[3:]]
    expected = 0
    for batch in batches:
        prompts = [request.prompt_tokens for request in batch]
        outputs = [request.output_tokens for request in batch]
        expected += 3 * max(prompts) - sum(prompts) + 3 * max(outputs) - sum(outputs)
    assert padding == expected


def test_a_request_that_never_fits_is_rejected_with_the_reason() -> None:
    work = serving(
        workload=trace(8, 60, 24),
        kv_cache={"layout": "paged", "memory_bytes": 3 * BLOCK_BYTES},
        batching={"policy": "continuous", "max_sequences": 4, "max_step_tokens": 64},
    )
    work.run_round(NullProbe())
    details = work.round_details()
    for request in details.requests:
        fits = request.prompt_tokens + request.output_tokens - 1 <= 3 * 16
        assert request.outcome == ("finished" if fits else "rejected")
        assert (request.reason is None) is fits
        assert len(request.token_steps) == (request.output_tokens if fits else 0)
    rejected = [event for event in details.events if event.kind == "rejected"]
    assert 0 < len(rejected) < 8
    assert all("more than the whole KV cache holds" in event.message for event in rejected)


def test_requests_that_arrive_later_are_waited_for() -> None:
    workload = trace(4, 5, 2) | {"arrival_rate_per_s": 40.0}
    work = serving(workload=workload, batching={"policy": "continuous", "max_sequences": 4})
    assert work.run_round(NullProbe()) is None
    details = work.round_details()
    assert all(request.outcome == "finished" for request in details.requests)
    assert details.requests[-1].arrival_s > 0
    assert len(details.steps) >= max(request.output_tokens for request in details.requests)


def test_fixed_work_under_continuous_batching() -> None:
    work = serving(
        workload={"batch": 3, "prompt_tokens": 10, "output_tokens": 4},
        batching={"policy": "continuous"},
    )
    work.run_round(NullProbe())
    assert len(work.round_details().steps) == 4
    assert work.phases == (Phase.PREFILL, Phase.DECODE)
