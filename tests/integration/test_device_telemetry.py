"""A whole run beside an NVML of which something fails: it completes, and says what is missing."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from llmprof.analysis.report import build_report
from llmprof.instruments.nvml import NvmlUnavailable, open_nvml
from llmprof.instruments.nvml_counters import AccumulatedCounters, CounterReading
from llmprof.profiler import measure
from llmprof.renderers.provenance import environment_facts
from llmprof.schema.run import DeviceTelemetry, RunRecord
from llmprof.schema.settings import RunConfig
from tests.fakes import FakeNvml
from tests.records import a_reading, a_run_record, an_environment
from tests.unit.instruments.environments import a_gpu
from tests.zoo.pieces import tiny_ops
from tests.zoo.workload import PlantedWorkload

Run = Callable[[FakeNvml | NvmlUnavailable], RunRecord]
EVERY_CALL = sorted(FakeNvml()._answers)
CONFIG = RunConfig.model_validate(
    {"model": "planted", "measure": {"rounds": 2, "warmup": 1, "passes": ["clean", "grouped"]}}
)


class Readings:
    """Ceilings that are always the same: this is about sensors."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def read(self, time_s: float) -> Any:
        return a_reading(time_s)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Of a planted step on the CPU, with the sensors of a GPU beside it."""
    workload = PlantedWorkload(
        [tiny_ops(4, "cpu")], device="cpu", threads=1, working_set_bytes=1 << 20
    )
    monkeypatch.setattr("llmprof.session.LiveCeilings", Readings)
    monkeypatch.setattr("llmprof.session.ENERGY_WINDOW_S", 0.0)
    monkeypatch.setattr("llmprof.session.AVERAGED_S", 0.0)
    monkeypatch.setattr("llmprof.session.Canary", lambda: SimpleNamespace(read_hz=lambda: 3e9))
    monkeypatch.setattr(
        "llmprof.profiler.cached_ceilings", lambda *_, **__: a_run_record().ceilings
    )

    def measured(nvml: FakeNvml | NvmlUnavailable) -> RunRecord:
        uuid = nvml.uuid if isinstance(nvml, FakeNvml) else "0b6e"
        environment = an_environment().model_copy(update={"gpu": a_gpu(uuid=uuid), "threads": 1})
        monkeypatch.setattr("llmprof.profiler.snapshot", lambda *_: environment)
        monkeypatch.setattr("llmprof.session.open_nvml", lambda uuid: open_nvml(uuid, nvml=nvml))
        return measure(workload, CONFIG, device="cpu", threads=1)

    return measured


def sensors(record: RunRecord) -> list[DeviceTelemetry]:
    """Of every round, after the whole record went through a file."""
    assert record.status == "complete"
    again = RunRecord.model_validate_json(record.model_dump_json(by_alias=True))
    assert build_report(again).phases
    every = [one.telemetry for one in (*again.rounds, *again.grouped)]
    found = [one for one in every if one is not None]
    assert len(found) == len(every) == 4
    return found


def null_fields(telemetry: DeviceTelemetry) -> set[str]:
    values = telemetry.model_dump(exclude={"missing", "interval_s"})
    return {name for name, value in values.items() if value is None}


@pytest.mark.parametrize("failing", [None, *EVERY_CALL])
@pytest.mark.parametrize("uuid", ["GPU-0b6e", "MIG-77aa"])
def test_each_single_call_may_fail(run: Run, failing: str | None, uuid: str) -> None:
    for telemetry in sensors(run(FakeNvml(uuid=uuid, failing=[failing] if failing else []))):
        if "nvml" in telemetry.missing:
            assert failing == "nvmlDeviceGetHandleByUUID"
            continue
        activities = {"sm_activity", "sm_occupancy", "tensor_activity", "dram_activity"}
        known = set(telemetry.missing) | (activities if "gpm" in telemetry.missing else set())
        assert null_fields(telemetry) <= known
        assert all(telemetry.missing.values())


def test_without_nvml_each_round_has_the_reason_and_the_report_says_it(run: Run) -> None:
    record = run(NvmlUnavailable("NVML Shared Library Not Found"))
    for telemetry in sensors(record):
        assert telemetry.missing == {"nvml": "NVML Shared Library Not Found"}
        assert (telemetry.power_w, telemetry.memory_used_bytes) == (None, None)
    said = [one.message for one in build_report(record).caveats if one.code == "telemetry"]
    assert said == ["not read from the device: nvml (NVML Shared Library Not Found)"]


def test_unified_memory_and_forbidden_counters(run: Run) -> None:
    nvml = FakeNvml(
        failing=[
            *("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetViolationStatus"),
            *("nvmlGpmQueryDeviceSupport", "nvmlDeviceGetTotalEnergyConsumption"),
        ]
    )
    for telemetry in sensors(run(nvml)):
        assert telemetry.missing["memory_used_bytes"] == "Not Supported"
        assert telemetry.missing["gpm"] == "Not Supported"
        assert telemetry.held_back_s == {}
        assert telemetry.sm_clock_hz == 1.755e9


def test_rounds_too_short_for_the_energy_counter_are_measured_back_to_back(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter that is fine with any interval in a window, and never in a round."""
    nvml = FakeNvml()
    monkeypatch.setattr("llmprof.session.ENERGY_WINDOW_S", 0.02)
    least_s = iter([60.0] * 4 + [0.0])
    stop = AccumulatedCounters.stop

    def stopped(counters: AccumulatedCounters) -> CounterReading:
        monkeypatch.setattr("llmprof.instruments.nvml_counters.LEAST_ENERGY_S", next(least_s))
        nvml.energy_mj += 5_000
        return stop(counters)

    monkeypatch.setattr(AccumulatedCounters, "stop", stopped)
    record = run(nvml)
    assert all(one.telemetry and one.telemetry.energy_j is None for one in record.rounds)
    assert record.energy is not None
    assert record.energy.energy_j == 5.0
    assert record.energy.rounds >= 1
    estimate = build_report(record).energy_per_token_j
    assert estimate is not None
    tokens = sum(step.shape.logit_rows for step in record.rounds[0].steps)
    assert estimate.point == pytest.approx(5.0 / (record.energy.rounds * tokens))


def test_without_an_energy_counter_it_is_estimated_from_power_and_said_to_be(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmprof.session.ENERGY_WINDOW_S", 0.1)
    record = run(FakeNvml(failing=["nvmlDeviceGetTotalEnergyConsumption"]))
    assert record.energy is not None
    assert record.energy.power_samples
    assert record.energy.energy_j == pytest.approx(350.5 * record.energy.interval_s)
    facts = environment_facts(build_report(record))
    (told,) = (one.value for one in facts if one.label == "energy")
    assert told.endswith("estimated from readings of its power")


def test_without_an_energy_counter_and_without_power_no_extra_round_is_run(run: Run) -> None:
    failing = ["nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage"]
    record = run(FakeNvml(failing=failing))
    assert record.energy is None
    assert record.rounds[0].telemetry is not None
    assert record.rounds[0].telemetry.missing["energy_j"] == "Not Supported"
