from dataclasses import replace

import pytest

from llmprof.analysis.crossings import context_crossing, first_size
from llmprof.analysis.prediction_target import make_target
from llmprof.analysis.report import build_report
from llmprof.architectures.presets import preset_config
from llmprof.costs.weight_layout import laid_out
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.levers import Levers
from llmprof.schema.settings import RunConfig
from tests.predicted_runs import a_base_run
from tests.records import a_run_record, model_phase
from tests.step_plans import READ_BYTES_PER_S


def _levers() -> Levers:
    levers = build_report(a_base_run()).levers
    assert levers is not None
    return levers


def test_levers_are_ranked_by_what_they_give() -> None:
    gains = [one.gain.point for one in _levers().helpful]
    assert gains == sorted(gains, reverse=True)
    assert min(gains) > 1.0


def test_a_larger_batch_and_smaller_weights_help_a_decode_that_reads_weights() -> None:
    labels = [one.label for one in _levers().helpful]
    assert {"batch 8", "int4 weights", "int8 weights"} <= set(labels)


def test_what_cannot_help_says_why() -> None:
    reasons = {one.label: one.reason for one in _levers().unhelpful}
    assert "of a decode step" in reasons["int8 KV cache"]
    assert "layout" in reasons["paged KV cache"]


def test_the_context_at_which_the_cache_outweighs_the_weights() -> None:
    """269 MB of weights over 23,040 bytes of cache per token."""
    crossings = {one.name: one for one in _levers().crossings}
    context = crossings["context_kv_exceeds_weights"].value
    assert context == pytest.approx(269_030_016 / 23_040, rel=1e-3)


@pytest.mark.parametrize(
    ("preset", "context"),
    [
        # Bytes of the weights without the embedding's rows, over those of keys and values per token.
        ("llama-3.1-8b", (16_060_522_496 - 128_256 * 4096 * 2) / (32 * 2 * 8 * 128 * 2)),
        # Ten layers see every token, 52 the last 1024: 8192 bytes per token each.
        ("gemma-3-27b", (54_018_692_608 - 52 * 8192 * 1024) / (10 * 8192)),
        ("mistral-7b-v0.1", None),  # every layer sees 4096: 0.5 GB at most
    ],
)
def test_layers_with_a_window_read_no_more_than_their_window(
    preset: str, context: float | None
) -> None:
    settings = RunConfig.model_validate(
        {"model": preset, "weights": {"source": "random", "dtype": "bf16"}}
    )
    model = preset_config(preset)
    weights = laid_out(model, settings.weights, "bf16")
    target = make_target(settings, model, weights, "bf16", decode_kernel=True)
    found = context_crossing(target).value
    assert found == (None if context is None else pytest.approx(context, rel=1e-3))


def test_prefill_turns_compute_bound_near_the_ridge_point() -> None:
    """1.2 TFLOP/s over 30 GB/s is 40 FLOP per byte: a bf16 weight does 2 FLOP per token, so 40 tokens."""
    crossings = {one.name: one for one in _levers().crossings}
    assert crossings["prompt_tokens_compute_bound"].value == pytest.approx(40, abs=2)


def test_work_with_stated_costs_has_no_levers() -> None:
    assert build_report(a_run_record()).levers is None


@pytest.mark.parametrize(("least", "found"), [(1, 1), (7, 7), (100, 100), (101, None)])
def test_first_size(least: int, found: int | None) -> None:
    assert first_size(lambda size: size >= least, 100) == found


def test_a_batch_that_does_not_help_is_told_by_its_tokens_not_by_its_longer_step() -> None:
    """64 rows are beyond the ridge of 40: twice as many take twice as long, and give as many tok/s."""
    phases = [model_phase(phase, batch=64, host_s=0.0) for phase in (Phase.PREFILL, Phase.DECODE)]
    kv_s = 64 * 512 * 23_040 / READ_BYTES_PER_S
    ops = [
        replace(op, time_s=kv_s / 0.8) if op.group is OpGroup.ATTENTION else op
        for op in phases[1].ops
    ]
    phases[1] = replace(phases[1], ops=tuple(ops))
    levers = build_report(a_base_run(phases=phases)).levers
    assert levers is not None
    (reason,) = (one.reason for one in levers.unhelpful if one.label == "batch 128")
    assert "x decode tok/s" in reason
    assert float(reason.split()[1]) == pytest.approx(1.0, abs=0.05)
