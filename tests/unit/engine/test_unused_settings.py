import pytest

from llmprof.engine.unused_settings import check_all_used
from llmprof.errors import CapabilityError
from llmprof.schema.settings import RunConfig

TRACE = {"kind": "trace"}
UNIFORM = {"kind": "uniform", "low": 8, "high": 16}


def config(groups: dict[str, object]) -> RunConfig:
    return RunConfig.model_validate({"model": "any", **groups})


@pytest.mark.parametrize(
    "groups",
    [
        {},
        {"workload": {"batch": 4, "prompt_tokens": 8, "output_tokens": 4}},
        {"workload": {**TRACE, "requests": 8, "arrival_rate_per_s": 2.0}},
        {"workload": {**TRACE, "lengths": {"prompt": UNIFORM}}},
        {"workload": {**TRACE, "file": "trace.jsonl"}, "batching": {"max_sequences": 4}},
        {"batching": {"policy": "continuous", "max_sequences": 4, "max_step_tokens": 64}},
        {"kv_cache": {"layout": "paged", "block_tokens": 32}},
        {"gate": {"tolerance": 0.1}},
        {"attention": {"backend": "flashinfer"}, "kv_cache": {"layout": "paged"}},
        {"measure": {"passes": ["clean", "tracing"]}},
    ],
)
def test_what_has_an_effect_passes(groups: dict[str, object]) -> None:
    check_all_used(config(groups))


@pytest.mark.parametrize(
    ("groups", "keys"),
    [
        ({"workload": TRACE, "measure": {"confirm": True}}, "measure.confirm"),
        ({"measure": {"confirm": True, "passes": ["clean"]}}, "measure.confirm"),
        ({"workload": {"file": "trace.jsonl"}}, "workload.file"),
        ({"workload": {"arrival_rate_per_s": 2.0}}, "workload.arrival_rate_per_s"),
        (
            {"workload": {"requests": 8, "lengths": {"output": {"mean": 9}}}},
            "workload.requests, workload.lengths",
        ),
        ({"workload": {**TRACE, "batch": 4}}, "workload.batch"),
        ({"workload": {**TRACE, "file": "f", "requests": 8}}, "workload.requests"),
        (
            {"workload": {**TRACE, "lengths": {"prompt": {"sigma": 2.0}}}},
            "workload.lengths.prompt.sigma",
        ),
        (
            {"workload": {**TRACE, "lengths": {"output": {**UNIFORM, "mean": 9}}}},
            "workload.lengths.output.mean",
        ),
        ({"kv_cache": {"block_tokens": 32}}, "kv_cache.block_tokens"),
        ({"attention": {"kind": "standard", "backend": "native"}}, "attention.backend"),
        (
            {"attention": {"backend": "varlen"}, "kv_cache": {"layout": "none"}},
            "attention.backend",
        ),
        (
            {"workload": {"batch": 4}, "batching": {"max_sequences": 1}},
            "batching.max_sequences",
        ),
        (
            {"workload": TRACE, "batching": {"max_step_tokens": 64}},
            "batching.max_step_tokens",
        ),
    ],
)
def test_what_has_none_is_refused_by_name(groups: dict[str, object], keys: str) -> None:
    with pytest.raises(CapabilityError) as caught:
        check_all_used(config(groups))
    assert caught.value.message.startswith(f"{keys} ha")
    assert "no effect" in caught.value.message
