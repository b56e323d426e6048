import os
import sys

import pytest

from llmprof.instruments.gpm import GpmUnavailable
from llmprof.instruments.nvml import (
    NvmlSession,
    NvmlUnavailable,
    gpu_names,
    load_nvml,
    nvml_uuid,
    open_nvml,
)
from tests.fakes import FakeNvml

EVENT_CALLS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)
TEMPERATURE_CALLS = ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")


def a_session(nvml: FakeNvml, *, holds_context: bool = True) -> NvmlSession:
    session = open_nvml(nvml.uuid, nvml=nvml, holds_context=holds_context)
    assert isinstance(session, NvmlSession)
    return session


def test_every_sensor_in_base_units() -> None:
    telemetry = a_session(FakeNvml()).read()
    assert telemetry.sm_clock_hz == 1.755e9
    assert telemetry.memory_clock_hz == 2.619e9
    assert telemetry.power_w == 350.5
    assert telemetry.temperature_celsius == 41
    assert telemetry.event_reasons == ()
    assert telemetry.foreign_processes == 0
    assert telemetry.missing == {}


def test_used_memory_is_without_the_driver_s_reserve() -> None:
    assert a_session(FakeNvml()).read().memory_used_bytes == 7_800_000


@pytest.mark.parametrize(
    ("failing", "field"),
    [
        (("nvmlDeviceGetPowerUsage",), "power_w"),
        (("nvmlDeviceGetComputeRunningProcesses",), "foreign_processes"),
        (TEMPERATURE_CALLS, "temperature_celsius"),
    ],
)
def test_one_failing_call_takes_one_field(failing: tuple[str, ...], field: str) -> None:
    whole = a_session(FakeNvml()).read().model_dump(exclude={"missing", field})
    telemetry = a_session(FakeNvml(failing=failing)).read()
    assert getattr(telemetry, field) is None
    assert telemetry.missing == {field: "Not Supported"}
    assert telemetry.model_dump(exclude={"missing", field}) == whole


def test_utilisation_that_is_not_supported_leaves_everything_else() -> None:
    """Under WSL."""
    telemetry = a_session(FakeNvml(failing=["nvmlDeviceGetUtilizationRates"])).read()
    assert (telemetry.gpu_busy_fraction, telemetry.memory_busy_fraction) == (None, None)
    assert telemetry.missing == dict.fromkeys(
        ("gpu_busy_fraction", "memory_busy_fraction"), "Not Supported"
    )
    assert telemetry.power_w == 350.5


def test_unified_memory_has_no_figure_by_nvml() -> None:
    telemetry = a_session(FakeNvml(failing=["nvmlDeviceGetMemoryInfo"])).read()
    assert (telemetry.memory_used_bytes, telemetry.memory_total_bytes) == (None, None)
    assert telemetry.missing == dict.fromkeys(
        ("memory_used_bytes", "memory_total_bytes"), "Not Supported"
    )


def test_how_full_memory_is_and_how_long_it_was_busy_are_two_figures() -> None:
    """30 of 40 GB in use, and not touched at all in the last period."""
    nvml = FakeNvml()
    nvml.used_bytes, nvml.memory_busy_percent = 30_000_000_000, 0
    telemetry = a_session(nvml).read()
    assert telemetry.memory_used_bytes == 30_000_000_000
    assert telemetry.memory_total_bytes == 40_000_000_000
    assert telemetry.memory_busy_fraction == 0.0
    assert telemetry.gpu_busy_fraction == 1.0
    assert (telemetry.dram_activity, telemetry.sm_activity) == (None, None)


def test_a_board_whose_uuid_stands_for_its_instances_says_nothing_of_one() -> None:
    nvml = FakeNvml()
    nvml.mig_mode = True
    telemetry = a_session(nvml).read()
    assert (telemetry.sm_clock_hz, telemetry.power_w) == (1.755e9, 350.5)
    assert (telemetry.memory_used_bytes, telemetry.foreign_processes) == (None, None)
    assert "MIG is on" in telemetry.missing["foreign_processes"]
    assert isinstance(a_session(nvml).gpm, GpmUnavailable)


@pytest.mark.parametrize(
    ("visible", "index", "uuid"),
    [
        (None, 1, "0b6e"),
        ("", 0, "0b6e"),
        ("2,0", 1, "0b6e"),
        ("GPU-0b", 0, "0b6e"),
        ("MIG-77aa", 0, "MIG-77aa"),
        ("GPU-0b6e, MIG-GPU-0b6e/1/0", 1, "MIG-GPU-0b6e/1/0"),
        ("MIG-77aa", 1, "0b6e"),
    ],
)
def test_the_uuid_that_nvml_is_asked_for(visible: str | None, index: int, uuid: str) -> None:
    """By number, by UUID or its beginning, and by instance."""
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert nvml_uuid("0b6e", index, variables) == uuid


def test_clocks_that_cannot_be_read_are_null_each_with_its_reason() -> None:
    telemetry = a_session(FakeNvml(failing=["nvmlDeviceGetClockInfo"])).read()
    assert (telemetry.sm_clock_hz, telemetry.memory_clock_hz) == (None, None)
    assert set(telemetry.missing) == {"sm_clock_hz", "memory_clock_hz"}


def test_a_device_whose_every_call_fails_is_read_all_the_same() -> None:
    nvml = FakeNvml()
    nvml._failing.update(set(nvml._answers) - {"nvmlDeviceGetHandleByUUID"})
    telemetry = a_session(nvml).read()
    assert set(telemetry.missing) == {
        *("sm_clock_hz", "memory_clock_hz", "power_w", "temperature_celsius"),
        *("memory_used_bytes", "memory_total_bytes", "event_reasons", "foreign_processes"),
        *("gpu_busy_fraction", "memory_busy_fraction"),
    }
    assert telemetry.event_reasons == ()
    a_session(nvml).close()


def test_a_value_that_means_not_available_is_no_value() -> None:
    nvml = FakeNvml()
    nvml.power_mw = 0xFFFFFFFF
    telemetry = a_session(nvml).read()
    assert telemetry.power_w is None
    assert "power_w" in telemetry.missing


@pytest.mark.parametrize("failing", [(), EVENT_CALLS[:1], EVENT_CALLS[1:]])
def test_event_reasons_by_name_with_the_old_call_as_fallback(failing: tuple[str, ...]) -> None:
    nvml = FakeNvml(failing=failing)
    nvml.reasons = 0x4 | 0x40 | 0x1000
    telemetry = a_session(nvml).read()
    assert telemetry.event_reasons == ("sw_power_cap", "hw_thermal_slowdown", "bit_0x1000")
    assert telemetry.missing == {}


def test_event_reasons_that_cannot_be_read_are_not_taken_for_none() -> None:
    assert a_session(FakeNvml(failing=EVENT_CALLS)).read().missing == {
        "event_reasons": "Not Supported"
    }


def test_a_driver_s_new_temperature_call() -> None:
    telemetry = a_session(FakeNvml(failing=TEMPERATURE_CALLS[:1])).read()
    assert (telemetry.temperature_celsius, telemetry.missing) == (42, {})


def test_processes_beside_our_own() -> None:
    nvml = FakeNvml()
    nvml.pids = [11, os.getpid(), 12, 11]
    assert a_session(nvml).read().foreign_processes == 2


@pytest.mark.parametrize("pids", [[], [4711]])
def test_in_a_container_that_hides_us_the_processes_are_not_known(pids: list[int]) -> None:
    nvml = FakeNvml()
    nvml.pids = pids
    telemetry = a_session(nvml).read()
    assert telemetry.foreign_processes is None
    assert "container" in telemetry.missing["foreign_processes"]
    assert a_session(nvml, holds_context=False).read().foreign_processes == len(pids)


@pytest.mark.parametrize("uuid", ["GPU-0b6e", "0b6e"])
def test_the_device_is_found_by_uuid_with_or_without_prefix(uuid: str) -> None:
    assert isinstance(open_nvml(uuid, nvml=FakeNvml(uuid="GPU-0b6e")), NvmlSession)


def test_a_mig_instance_has_its_board_s_clocks_and_its_own_memory() -> None:
    nvml = FakeNvml(uuid="MIG-77aa")
    session = open_nvml("77aa", nvml=nvml)
    assert isinstance(session, NvmlSession)
    telemetry = session.read()
    assert (telemetry.sm_clock_hz, telemetry.power_w) == (1.755e9, 350.5)
    assert telemetry.memory_used_bytes == 7_800_000
    assert session.describe().mig is True


def test_an_unknown_device_is_no_session() -> None:
    session = open_nvml("ffff", nvml=FakeNvml())
    assert isinstance(session, NvmlUnavailable)
    assert "ffff" in session.reason
    assert "Not Found" in session.reason


def test_description_and_what_is_missing_in_it() -> None:
    described = a_session(FakeNvml()).describe()
    assert described.driver_version == "570.86"
    assert described.power_limit_w == 700
    assert described.max_sm_clock_hz == 1.98e9
    assert described.mig is False
    without = a_session(FakeNvml(failing=["nvmlDeviceGetMigMode"])).describe()
    assert without.mig is None
    assert without.missing == {"mig": "Not Supported"}


def test_names_of_the_gpus_or_the_reason() -> None:
    assert gpu_names(FakeNvml()) == ("NVIDIA H100",)
    assert gpu_names(FakeNvml(failing=["nvmlDeviceGetCount"])) == NvmlUnavailable("Not Supported")


def test_without_the_package_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    library = load_nvml()
    assert isinstance(library, NvmlUnavailable)
    assert "nvidia-ml-py" in library.reason
    assert open_nvml("0b6e") == library
