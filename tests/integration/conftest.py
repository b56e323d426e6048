"""Readings of ceilings between rounds, as short as they can be: no test here looks at their figures."""

import pytest

from llmprof.ceilings import live, read_probe, skinny
from llmprof.experiments import product_benchmark, timed_pairs

_SHORT_S = {
    "_LEAST_WARM_UP_S": 0.0,
    "_LONGEST_WARM_UP_S": 0.002,
    "_READ_S": 0.004,
    "_PART_S": 0.002,
    "_RACE_S": 0.01,
}


@pytest.fixture(autouse=True)
def short_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some 20 ms a reading instead of 200: `tests/unit/ceilings` has what a reading does and how long.

    Kernels that are timed by themselves are so once: `tests/unit/experiments` has how they are repeated.
    """
    for name, seconds in _SHORT_S.items():
        monkeypatch.setattr(live, name, seconds)
    monkeypatch.setattr(read_probe, "_LEAST_CALL_BYTES", 1 << 20)
    monkeypatch.setattr(skinny, "_CALL_S", 0.0005)
    monkeypatch.setattr(skinny, "_LEAST_CALL_BYTES", 1 << 18)
    monkeypatch.setattr(product_benchmark, "_PASS_S", 0.0005)
    monkeypatch.setattr(timed_pairs, "_MOST_BATCHES", 1)
