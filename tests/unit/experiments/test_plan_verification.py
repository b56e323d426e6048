"""Plans against a tiny engine: weights and cache to the byte, and where memory really runs out."""

import json
from pathlib import Path

import pytest
import torch

from llmprof.architectures.source import resolve_model
from llmprof.errors import CapabilityError, InputError
from llmprof.experiments.plan_verification import verified_plan
from llmprof.instruments.live_tensors import LiveTensors, OverBudgetError
from llmprof.planning.plan import PlanRequest
from llmprof.schema.measurement import Source
from llmprof.schema.plan import Plan, PlanVerification
from llmprof.schema.run import Tool
from llmprof.schema.settings import RunConfig
from tests.model_files import tiny_config

MIB = 2**20


@pytest.fixture
def model(tmp_path: Path) -> str:
    shape = tiny_config(
        hidden_size=128,
        intermediate_size=256,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=256,
        max_position_embeddings=1024,
        torch_dtype="bfloat16",
    )
    path = tmp_path / "config.json"
    path.write_text(json.dumps(shape))
    return str(path)


def verify(model: str, memory: int, vary: str = "batch", **groups: object) -> Plan:
    weights = {"source": "random"}
    config = RunConfig.model_validate(
        {"model": model, "device": "cpu", "weights": weights} | groups
    )
    request = PlanRequest(
        device_bytes=memory,
        device_source=Source.ASSUMED,
        reserve_bytes=0,
        contexts=(66,),
        batches=(8,) if vary == "context" else (),
    )
    tool = Tool(version="0", argv=())
    return verified_plan(resolve_model(model), config, request, tool=tool, vary=vary)


def checked(plan: Plan) -> PlanVerification:
    assert plan.verification is not None
    return plan.verification


CASES = [
    ("flash", "contiguous", "as_weights", "batch"),
    ("flash", "contiguous", "as_weights", "context"),
    ("flash", "paged", "as_weights", "context"),
    ("flash", "paged", "int8", "batch"),
    ("flash", "none", "as_weights", "batch"),
    ("standard", "contiguous", "as_weights", "batch"),
    ("standard", "contiguous", "int8", "context"),
    ("standard", "paged", "as_weights", "context"),
    ("standard", "paged", "int8", "batch"),
    ("standard", "none", "as_weights", "batch"),
]


@pytest.mark.parametrize(("attention", "layout", "kv", "vary"), CASES)
def test_planned_bytes_are_the_allocated_ones(
    model: str, attention: str, layout: str, kv: str, vary: str
) -> None:
    groups = {"kv_cache": {"layout": layout, "dtype": kv}, "attention": {"kind": attention}}
    check = checked(verify(model, 5 * MIB, vary, **groups))
    weights, cache, _, live = check.compared
    assert weights.planned_bytes == weights.allocated_bytes
    assert cache.planned_bytes == cache.allocated_bytes
    assert live.allocated_bytes == pytest.approx(live.planned_bytes, rel=0.02)
    assert check.real_first_failure is not None
    off = abs(check.real_first_failure - check.predicted_first_failure)
    assert off <= (1 if vary == "batch" else 0.02 * check.predicted_first_failure)
    outcomes = {
        getattr(run, "batch" if vary == "batch" else "prompt_tokens"): run.fitted
        for run in check.runs
    }
    assert outcomes[check.real_first_failure] is False
    assert outcomes[check.real_first_failure - 1] is True


def test_the_plan_is_that_of_the_engines_layout(model: str) -> None:
    plan = verify(model, 3 * MIB, kv_cache={"dtype": "int8"})
    assert plan.memory.weight_bytes == checked(plan).compared[0].allocated_bytes
    assert plan.kv_dtype == "int8"


def test_what_cannot_be_verified_is_refused(model: str) -> None:
    with pytest.raises(CapabilityError, match="does not hold the smallest run"):
        verify(model, 1000)
    with pytest.raises(CapabilityError, match="one device"):
        verify(model, MIB, parallel={"tensor": 2})
    with pytest.raises(InputError, match="batch or context"):
        verify(model, MIB, "speed")


def test_live_tensors_count_storages_once_and_let_go() -> None:
    before = torch.zeros(100)
    live = LiveTensors()
    live.leave_out([before])
    with live:
        kept = torch.zeros(1000)
        views = (kept[:10], kept.view(10, 100), before[:5])
        passing = torch.ones(500)
        del passing
        other = kept + 1
    assert len(views) == 3
    assert other.numel() == 1000
    assert live.live_bytes == 8000
    assert live.peak_bytes == 8000


def test_the_allocation_beyond_the_budget_fails() -> None:
    with LiveTensors(budget_bytes=1000):
        small = torch.zeros(100)
        with pytest.raises(OverBudgetError, match="budget"):
            torch.zeros(200)
    assert small.numel() == 100


def test_a_norm_after_a_block_is_planned_for(tmp_path: Path) -> None:
    """Gemma norms what a block projects, which then stands beside it: most, where rows are wide."""
    shape = {
        **tiny_config(hidden_size=256, intermediate_size=64, num_attention_heads=2),
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        "num_key_value_heads": 1,
        "head_dim": 16,
        "vocab_size": 256,
        "max_position_embeddings": 1024,
        "torch_dtype": "bfloat16",
        "query_pre_attn_scalar": 16,
        "sliding_window": 1024,
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(shape))
    check = checked(verify(str(path), 5 * MIB))
    live = check.compared[3]
    assert live.allocated_bytes == pytest.approx(live.planned_bytes, rel=0.02)
    assert check.real_first_failure is not None
    assert abs(check.real_first_failure - check.predicted_first_failure) <= 1
