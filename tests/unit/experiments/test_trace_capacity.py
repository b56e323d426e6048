"""The fixed trace in one budget of memory: what paging and continuous batching are worth."""

import pytest

from llmprof.engine.request_trace import Request
from llmprof.experiments.trace_capacity import (
    compare_batching,
    compare_capacity,
    log_normal_trace,
)

LONGEST = 2048


@pytest.mark.parametrize("seed", range(4))
def test_paged_runs_as_many_as_the_oracle_and_wastes_little(seed: int) -> None:
    trace = log_normal_trace(requests=64, mean=256, sigma=1.0, longest=LONGEST, seed=seed)
    rows = compare_capacity(
        trace,
        budget_tokens=4 * LONGEST,
        longest=LONGEST,
        block_tokens=16,
        max_step_tokens=LONGEST,
    )
    longest, power_of_two, oracle, paged = rows
    assert longest.mean_running == 4
    assert longest.mean_running < power_of_two.mean_running < oracle.mean_running
    assert paged.mean_running >= 0.9 * oracle.mean_running
    assert paged.wasted_fraction <= 0.05
    assert longest.wasted_fraction > 0.7
    assert all(row.num_preemptions == 0 for row in rows[:3])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("places", [4, 8, 16])
def test_continuous_batching_reaches_what_the_order_of_arrival_allows(
    seed: int, places: int
) -> None:
    trace = log_normal_trace(requests=64, mean=256, sigma=1.0, longest=LONGEST, seed=seed)
    gain = compare_batching(trace, max_sequences=places, max_step_tokens=LONGEST)
    assert gain.gain >= 0.9 * gain.largest_gain_in_order
    assert gain.least_steps <= gain.least_steps_in_order <= gain.continuous_steps
    assert gain.continuous_steps < gain.static_steps


def test_bounds_by_hand() -> None:
    """Outputs 8, 2, 2 | 6, 6, 6 in three places: static 8 + 6; in order the places end at 8, 8, 8
    and the last one, which starts at 8, at 14.
    """
    outputs = [8, 2, 2, 6, 6, 6]
    trace = [Request(i, 0.0, prompt_tokens=4, output_tokens=o) for i, o in enumerate(outputs)]
    gain = compare_batching(trace, max_sequences=3, max_step_tokens=64)
    assert gain.static_steps == 14
    assert gain.least_steps == 10
    assert gain.least_steps_in_order == 14
    assert gain.continuous_steps == 14


def test_the_trace_has_the_lengths_that_were_asked_for() -> None:
    trace = log_normal_trace(requests=4000, mean=256, sigma=0.5, longest=10**6, seed=1)
    totals = [request.prompt_tokens + request.output_tokens for request in trace]
    assert sum(totals) / len(totals) == pytest.approx(256, rel=0.05)
    assert all(abs(r.prompt_tokens - r.output_tokens) <= 1 for r in trace)
