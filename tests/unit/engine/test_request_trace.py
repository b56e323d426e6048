import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmprof.engine.request_trace import draw_lengths, longest_sequence, make_trace
from llmprof.errors import InputError
from llmprof.schema.settings import LengthDistribution, WorkloadSettings


def settings(**changes: Any) -> WorkloadSettings:
    return WorkloadSettings.model_validate({"kind": "trace", **changes})


def test_fixed_work_is_a_trace_of_equal_requests() -> None:
    trace = make_trace(WorkloadSettings(batch=3, prompt_tokens=7, output_tokens=4))
    assert [(one.index, one.arrival_s, one.prompt_tokens, one.output_tokens) for one in trace] == [
        (index, 0.0, 7, 4) for index in range(3)
    ]
    assert trace[0].max_cached_tokens == 10


def test_log_normal_lengths_have_the_mean_and_sigma_that_were_asked_for() -> None:
    asked = LengthDistribution(kind="log_normal", mean=256, sigma=0.5, low=1, high=10**6)
    drawn = draw_lengths(asked, 40_000, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(256, rel=0.02)
    assert np.log(drawn).std() == pytest.approx(0.5, rel=0.02)
    assert np.median(drawn) == pytest.approx(256 / math.exp(0.5**2 / 2), rel=0.02)


def test_lengths_are_clipped() -> None:
    asked = LengthDistribution(kind="log_normal", mean=256, sigma=1.0, low=50, high=300)
    drawn = draw_lengths(asked, 1000, np.random.default_rng(0))
    assert (drawn.min(), drawn.max()) == (50, 300)


def test_uniform_lengths_reach_both_ends() -> None:
    asked = LengthDistribution(kind="uniform", low=3, high=6)
    drawn = draw_lengths(asked, 500, np.random.default_rng(0))
    assert set(drawn.tolist()) == {3, 4, 5, 6}


def test_the_seed_decides_lengths_and_arrivals() -> None:
    changes: dict[str, Any] = {
        "requests": 20,
        "lengths": {"prompt": {"kind": "log_normal", "mean": 50}, "output": {"kind": "uniform"}},
        "arrival_rate_per_s": 4.0,
    }
    first, again, other = (make_trace(settings(seed=seed, **changes)) for seed in (1, 1, 2))
    assert first == again != other
    slower = make_trace(settings(seed=1, **changes | {"arrival_rate_per_s": 1.0}))
    assert [one.prompt_tokens for one in slower] == [one.prompt_tokens for one in first]


def test_poisson_arrivals_start_at_once_and_keep_their_rate() -> None:
    arrivals = [one.arrival_s for one in make_trace(settings(requests=4000, arrival_rate_per_s=5))]
    assert arrivals[0] == 0.0
    assert arrivals == sorted(arrivals)
    gaps = np.diff(arrivals)
    assert gaps.mean() == pytest.approx(0.2, rel=0.05)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)


def test_a_file_gives_lengths_and_may_give_arrivals(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [
        {"prompt_tokens": 5, "output_tokens": 2, "arrival_s": 0.5},
        {"prompt_tokens": 9, "output_tokens": 1, "arrival_s": 0.25, "user": "ignored"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    trace = make_trace(settings(file=str(path)))
    assert [(one.index, one.arrival_s, one.prompt_tokens) for one in trace] == [
        (0, 0.25, 9),
        (1, 0.5, 5),
    ]
    assert longest_sequence(trace) == 9 + 2 - 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense", "line 2 is not JSON"),
        ("[1, 2]", "line 2 is not a JSON object"),
        ('{"prompt_tokens": 4}', "line 2: output_tokens is null"),
        ('{"prompt_tokens": 0, "output_tokens": 1}', "line 2: prompt_tokens is 0"),
        ('{"prompt_tokens": 1.5, "output_tokens": 1}', "line 2: prompt_tokens is 1.5"),
        ('{"prompt_tokens": true, "output_tokens": 1}', "line 2: prompt_tokens is true"),
        ('{"prompt_tokens": 1, "output_tokens": 1, "arrival_s": -1}', "line 2: arrival_s is -1"),
    ],
)
def test_a_bad_line_is_named(line: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(f'{{"prompt_tokens": 1, "output_tokens": 1}}\n{line}\n')
    with pytest.raises(InputError, match=r"trace\.jsonl") as caught:
        make_trace(settings(file=str(path)))
    assert problem in caught.value.line()


def test_a_file_that_is_not_there_or_empty(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        make_trace(settings(file=str(tmp_path / "absent.jsonl")))
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InputError, match="has no requests"):
        make_trace(settings(file=str(tmp_path / "empty.jsonl")))
