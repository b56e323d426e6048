"""NVIDIA's management library: what a GPU's sensors say, each field on its own.

No field is trusted to exist: drivers, containers, MIG, WSL and unified memory each lack some. A
call that fails gives null and its reason, and never stops a measurement.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from llmprof.instruments.gpm import GpmReading, GpmSampler, open_gpm
from llmprof.instruments.nvml_counters import AccumulatedCounters, CounterReading
from llmprof.instruments.nvml_questions import Questions
from llmprof.schema.run import DeviceTelemetry

_T = TypeVar("_T")

_EVENT_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Bits of nvmlClocksEventReasons (nvml.h)."""
SHARED_BOARD: Final = (
    "MIG is on, and CUDA tells the whole board's UUID: the figure would be of all its instances"
)
HIDDEN_PROCESSES: Final = "per-process figures are not available in this container"


@dataclass(frozen=True, slots=True)
class NvmlUnavailable:
    """There is no session, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class NvmlDescription:
    """What does not change during a run; fields that could not be read are in `missing`."""

    driver_version: str | None
    power_limit_w: float | None
    max_sm_clock_hz: float | None
    mig: bool | None
    missing: dict[str, str]


def load_nvml() -> Any | NvmlUnavailable:
    """The initialised module `pynvml` (distribution nvidia-ml-py), or why there is none."""
    try:
        import pynvml
    except ImportError as error:
        return NvmlUnavailable(f"the package nvidia-ml-py cannot be imported: {error}")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NvmlUnavailable(str(error))
    return pynvml


def gpu_names(nvml: Any) -> tuple[str, ...] | NvmlUnavailable:
    """Names of all GPUs that NVML sees, whatever torch or CUDA_VISIBLE_DEVICES say."""
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        return tuple(_text(nvml.nvmlDeviceGetName(handle)) for handle in handles)
    except nvml.NVMLError as error:
        return NvmlUnavailable(str(error))


def nvml_uuid(torch_uuid: str, index: int, variables: Mapping[str, str]) -> str:
    """The UUID to ask NVML for, of torch's device `index`.

    torch's own tells the GPU whatever CUDA_VISIBLE_DEVICES holds: numbers, UUIDs or beginnings of
    UUIDs. But CUDA may give an instance of a MIG GPU the UUID of its board, so the instance is
    taken from the variable, which is the only way to choose one (MIG-..., MIG-GPU-.../1/0).
    """
    visible = variables.get("CUDA_VISIBLE_DEVICES", "").split(",")
    named = visible[index].strip() if index < len(visible) else ""
    return named if named.startswith("MIG-") else torch_uuid


def open_nvml(
    uuid: str, *, holds_context: bool = True, nvml: Any = None
) -> "NvmlSession | NvmlUnavailable":
    """Session with the device of this UUID, as torch gives it (with or without `GPU-`, `MIG-`).

    By UUID, since NVML's indices know nothing of CUDA_VISIBLE_DEVICES or CUDA_DEVICE_ORDER.
    `holds_context`: this process has CUDA work on the device, so it must be among its processes.
    """
    library = load_nvml() if nvml is None else nvml
    if isinstance(library, NvmlUnavailable):
        return library
    names = (uuid,) if uuid.startswith(("GPU-", "MIG-")) else (f"GPU-{uuid}", f"MIG-{uuid}")
    questions = Questions((library.NVMLError, AttributeError))
    handle = questions.ask(
        "device", *(lambda n=name: library.nvmlDeviceGetHandleByUUID(n) for name in names)
    )
    if handle is None:
        reason = questions.missing["device"]
        return NvmlUnavailable(f"NVML does not find the device {uuid}: {reason}")
    return NvmlSession(library, handle, holds_context=holds_context)


class NvmlSession:
    """One device: `describe()` once; `start()`, a round, `read()`."""

    def __init__(self, nvml: Any, handle: Any, *, holds_context: bool) -> None:
        self._nvml = nvml
        self._handle = handle
        self._holds_context = holds_context
        self._errors = (nvml.NVMLError, AttributeError)
        self._is_shared_board: bool | None = False
        self._board = self._board_of(handle)
        self._counters = AccumulatedCounters(nvml, self._board)
        # What memory is used is asked before GPM, which made that call fail on old drivers.
        self._memory_bytes(Questions(self._errors))
        is_part = self._is_mig or bool(self._is_shared_board)
        self.gpm = open_gpm(nvml, handle, is_mig=is_part)
        self._started = False

    def start(self) -> None:
        """Open the interval that counters and activities of the next `read` are about."""
        self._counters.start()
        if isinstance(self.gpm, GpmSampler):
            self.gpm.start()
        self._started = True

    def read(self) -> DeviceTelemetry:
        """Sensors now: clocks in Hz, power in W, memory in bytes without the driver's reserve.

        Energy, time held back and activities are those since `start`; null where it was not called.
        """
        activity, counters = self._since_start()
        nvml, board = self._nvml, self._board
        questions = Questions(self._errors)
        ask = questions.ask
        sm_mhz = ask("sm_clock_hz", lambda: nvml.nvmlDeviceGetClockInfo(board, nvml.NVML_CLOCK_SM))
        memory_mhz = ask(
            "memory_clock_hz", lambda: nvml.nvmlDeviceGetClockInfo(board, nvml.NVML_CLOCK_MEM)
        )
        power_mw = ask("power_w", lambda: nvml.nvmlDeviceGetPowerUsage(board))
        used_bytes, total_bytes = self._memory_bytes(questions)
        gpu_busy, memory_busy = self._busy_fractions(questions)
        return DeviceTelemetry(
            sm_clock_hz=_scaled(sm_mhz, 1e6),
            memory_clock_hz=_scaled(memory_mhz, 1e6),
            power_w=_scaled(power_mw, 1e-3),
            temperature_celsius=self._temperature_celsius(questions),
            memory_used_bytes=used_bytes,
            memory_total_bytes=total_bytes,
            gpu_busy_fraction=gpu_busy,
            memory_busy_fraction=memory_busy,
            event_reasons=self._event_reasons(questions),
            foreign_processes=self._foreign_processes(questions),
            energy_j=counters.energy_j,
            held_back_s=counters.held_back_s,
            interval_s=counters.interval_s or None,
            sm_activity=activity.sm_activity,
            sm_occupancy=activity.sm_occupancy,
            tensor_activity=activity.tensor_activity,
            dram_activity=activity.dram_activity,
            missing={**questions.missing, **counters.missing, **activity.missing},
        )

    def _since_start(self) -> tuple[GpmReading, CounterReading]:
        """Activities first: their window ends with the work."""
        if not self._started:
            return GpmReading(), CounterReading(None, {}, 0.0, {})
        self._started = False
        if isinstance(self.gpm, GpmSampler):
            activity = self.gpm.stop()
        else:
            activity = GpmReading(missing={"gpm": self.gpm.reason})
        return activity, self._counters.stop()

    def sm_clock_hz(self) -> float | None:
        """Now, and nothing else: cheap enough to be asked again and again."""
        nvml, board = self._nvml, self._board
        mhz = Questions(self._errors).ask(
            "sm_clock_hz", lambda: nvml.nvmlDeviceGetClockInfo(board, nvml.NVML_CLOCK_SM)
        )
        return _scaled(mhz, 1e6)

    def power_w(self) -> float | None:
        """Of the whole board: an average over the last second on newer GPUs."""
        nvml, board = self._nvml, self._board
        mw = Questions(self._errors).ask("power_w", lambda: nvml.nvmlDeviceGetPowerUsage(board))
        return _scaled(mw, 1e-3)

    def counts_energy(self) -> bool:
        return self._counters.counts_energy()

    def lacks_energy(self) -> bool:
        return self._counters.lacks_energy()

    def describe(self) -> NvmlDescription:
        nvml, board = self._nvml, self._board
        questions = Questions(self._errors)
        ask = questions.ask
        driver = ask("driver_version", lambda: _text(nvml.nvmlSystemGetDriverVersion()))
        limit_mw = ask("power_limit_w", lambda: nvml.nvmlDeviceGetPowerManagementLimit(board))
        max_mhz = ask(
            "max_sm_clock_hz", lambda: nvml.nvmlDeviceGetMaxClockInfo(board, nvml.NVML_CLOCK_SM)
        )
        mode = ask("mig", lambda: nvml.nvmlDeviceGetMigMode(board)[0])
        return NvmlDescription(
            driver_version=driver,
            power_limit_w=_scaled(limit_mw, 1e-3),
            max_sm_clock_hz=_scaled(max_mhz, 1e6),
            mig=None if mode is None else bool(mode),
            missing=questions.missing,
        )

    def close(self) -> None:
        """Leave the library; the session may not be used afterwards."""
        if isinstance(self.gpm, GpmSampler):
            self.gpm.close()
        Questions(self._errors).ask("shutdown", self._nvml.nvmlShutdown)

    def _board_of(self, handle: Any) -> Any:
        """The whole GPU: a MIG instance has its own memory and processes, but no own clocks."""
        ask = Questions(self._errors).ask
        mig = ask("mig", lambda: bool(self._nvml.nvmlDeviceIsMigDeviceHandle(handle)))
        self._is_mig = bool(mig)
        if not mig:
            self._is_shared_board = ask(
                "mode", lambda: bool(self._nvml.nvmlDeviceGetMigMode(handle)[0])
            )
            return handle
        parent = self._nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle
        board = ask("board", lambda: parent(handle))
        return handle if board is None else board

    def _temperature_celsius(self, questions: Questions) -> float | None:
        nvml, board = self._nvml, self._board
        sensor = nvml.NVML_TEMPERATURE_GPU
        return questions.ask(
            "temperature_celsius",
            lambda: float(nvml.nvmlDeviceGetTemperature(board, sensor)),
            lambda: float(nvml.nvmlDeviceGetTemperatureV(board, sensor)),  # newer drivers
        )

    def _memory_bytes(self, questions: Questions) -> tuple[int | None, int | None]:
        """Used and all of it. Neither on unified memory, where no version of the call is supported."""
        # Only version 2 tells what is used apart from what the driver reserves, which can be 0.9 GB
        # of an idle device; there is no falling back to version 1, whose `used` holds both.
        nvml, handle = self._nvml, self._handle
        info = self._of_instance(
            questions,
            "memory_used_bytes",
            lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2),
        )
        if info is None:
            questions.missing["memory_total_bytes"] = questions.missing["memory_used_bytes"]
            return None, None
        return int(info.used), int(info.total)

    def _busy_fractions(self, questions: Questions) -> tuple[float | None, float | None]:
        """Shares of time, of the whole device; not supported on MIG and under WSL."""
        names = "gpu_busy_fraction", "memory_busy_fraction"
        rates = questions.ask(
            names[0], lambda: self._nvml.nvmlDeviceGetUtilizationRates(self._handle)
        )
        if rates is None:
            questions.missing[names[1]] = questions.missing[names[0]]
            return None, None
        return rates.gpu / 100, rates.memory / 100

    def _of_instance(self, questions: Questions, name: str, call: Callable[[], _T]) -> _T | None:
        """What each MIG instance has of its own: of the board it would be that of all of them."""
        if self._is_shared_board:
            questions.missing[name] = SHARED_BOARD
            return None
        return questions.ask(name, call)

    def _event_reasons(self, questions: Questions) -> tuple[str, ...]:
        nvml, board = self._nvml, self._board
        mask = questions.ask(
            "event_reasons",
            lambda: int(nvml.nvmlDeviceGetCurrentClocksEventReasons(board)),
            lambda: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(board)),  # before R535
        )
        bits = [1 << i for i in range((mask or 0).bit_length()) if (mask or 0) >> i & 1]
        return tuple(_EVENT_REASONS.get(bit, f"bit_{bit:#x}") for bit in bits)

    def _foreign_processes(self, questions: Questions) -> int | None:
        name = "foreign_processes"
        listed = self._of_instance(
            questions, name, lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        )
        if listed is None:
            return None
        pids = {process.pid for process in listed}
        if not self._holds_context or os.getpid() in pids:
            return len(pids - {os.getpid()})
        # In a container NVML names processes by the host's ids, or hides them.
        questions.missing[name] = (
            f"NVML lists {len(pids)} processes, none of them this one: {HIDDEN_PROCESSES}"
        )
        return None


def _scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
