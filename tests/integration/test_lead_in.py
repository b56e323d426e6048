"""Every timed round follows a little of its own work, not a reading of the ceilings."""

from types import SimpleNamespace
from typing import Any

import pytest

from llmprof.engine.probe import Probe
from llmprof.profiler import measure
from llmprof.schema.settings import RunConfig
from tests.records import a_reading, a_run_record
from tests.zoo.pieces import tiny_ops
from tests.zoo.workload import PlantedWorkload


class Listed(PlantedWorkload):
    """Writes down what is asked of it."""

    def __init__(self, events: list[str]) -> None:
        piece = tiny_ops(1, "cpu")
        super().__init__([piece], device="cpu", threads=1, working_set_bytes=1 << 20)
        self._events = events

    def lead_in(self) -> None:
        self._events.append("lead-in")

    def run_round(self, probe: Probe) -> str | None:
        self._events.append("round")
        return super().run_round(probe)


def test_a_lead_in_stands_between_each_reading_and_the_round_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []

    class Readings:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def read(self, time_s: float) -> Any:
            events.append("reading")
            return a_reading(time_s)

    monkeypatch.setattr("llmprof.session.LiveCeilings", Readings)
    monkeypatch.setattr("llmprof.session.Canary", lambda: SimpleNamespace(read_hz=lambda: 3e9))
    monkeypatch.setattr(
        "llmprof.profiler.cached_ceilings", lambda *_, **__: a_run_record().ceilings
    )
    measured = {"rounds": 2, "warmup": 1, "passes": ["clean", "grouped"]}
    config = RunConfig.model_validate({"model": "planted", "measure": measured})
    record = measure(Listed(events), config, device="cpu", threads=1)
    assert len(record.rounds) == len(record.grouped) == 2
    timed = events[events.index("reading") :]
    assert timed == ["reading", *["lead-in", "round", "reading"] * 4]
