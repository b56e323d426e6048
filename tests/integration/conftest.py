"""Where the command finds itself in these tests, and what it need not measure anew in each of them."""

from pathlib import Path

import pytest

from llmprof.ceilings import live, read_probe, skinny
from llmprof.experiments import product_benchmark, timed_pairs
from tests.records import a_run_record
from tests.tiny_decoders import LLAMA, write_decoder

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


@pytest.fixture
def in_a_fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("LLMPROF_DIR", "LLMPROF_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def known_ceilings(in_a_fresh_folder: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the device, as if they had been measured before: measuring them has its own tests."""
    ceilings = a_run_record().ceilings
    for place in ("profiler", "experiments.sweep_plan"):
        monkeypatch.setattr(f"llmprof.{place}.cached_ceilings", lambda *_, **__: ceilings)


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """A folder with a decoder of two layers."""
    return str(write_decoder(tmp_path / "tiny", LLAMA))
