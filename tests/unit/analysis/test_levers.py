import pytest

from llmprof.analysis.crossings import first_size
from llmprof.analysis.report import build_report
from llmprof.schema.levers import Levers
from tests.predicted_runs import a_base_run
from tests.records import a_run_record


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


def test_prefill_turns_compute_bound_near_the_ridge_point() -> None:
    """1.2 TFLOP/s over 30 GB/s is 40 FLOP per byte: a bf16 weight does 2 FLOP per token, so 40 tokens."""
    crossings = {one.name: one for one in _levers().crossings}
    assert crossings["prompt_tokens_compute_bound"].value == pytest.approx(40, abs=2)


def test_work_with_stated_costs_has_no_levers() -> None:
    assert build_report(a_run_record()).levers is None


@pytest.mark.parametrize(("least", "found"), [(1, 1), (7, 7), (100, 100), (101, None)])
def test_first_size(least: int, found: int | None) -> None:
    assert first_size(lambda size: size >= least, 100) == found
