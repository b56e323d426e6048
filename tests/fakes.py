"""Stand-ins for clocks and devices: what they say is set by the test."""

import os
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any


class FakeClock:
    """A clock that moves when it is told to, and by `per_reading_ns` at each reading."""

    def __init__(self, now_ns: int = 0, *, per_reading_ns: int = 0) -> None:
        self.time_ns = now_ns
        self.per_reading_ns = per_reading_ns

    def now_ns(self) -> int:
        self.time_ns += self.per_reading_ns
        return self.time_ns

    def advance(self, ns: int) -> None:
        self.time_ns += ns


class FakeTimer:
    """A device's clock: its marks are indices, as those of CUDA events are."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.times_ns: list[int] = []
        self.synchronized = True
        self.resets = 0

    def mark(self) -> int:
        self.synchronized = False
        self.times_ns.append(self.clock.time_ns)
        return len(self.times_ns) - 1

    def synchronize(self) -> None:
        self.synchronized = True

    def elapsed_s(self, begin: int, end: int) -> float:
        if not self.synchronized:
            raise RuntimeError("the device has not reached this mark yet")
        return (self.times_ns[end] - self.times_ns[begin]) / 1e9

    def reset(self) -> None:
        self.resets += 1
        self.times_ns.clear()


class FakeNvmlError(Exception):
    pass


class FakeNotSupportedError(FakeNvmlError):
    pass


class FakeNvml:
    """The module pynvml of a machine with one H100; functions named in `failing` raise."""

    NVMLError = FakeNvmlError
    NVMLError_NotSupported = FakeNotSupportedError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0
    NVML_PERF_POLICY_POWER = 0
    NVML_PERF_POLICY_THERMAL = 1
    NVML_GPM_METRICS_GET_VERSION = 1
    nvmlMemory_v2 = 0x2000028  # noqa: N815 (pynvml's name)

    def __init__(self, *, uuid: str = "GPU-0b6e", failing: Iterable[str] = ()) -> None:
        self.uuid = uuid
        self.is_mig = uuid.startswith("MIG-")
        self.reasons = 0
        self.pids = [os.getpid()]
        self.power_mw = 350_500
        self.shutdowns = 0
        self.energy_mj = 1_000_000
        self.violation_ns = {0: 5_000_000_000, 1: 0}
        self.has_gpm = True
        self.gpm_percent = {2: 90.0, 3: 40.0, 5: 12.5, 10: 70.0}
        self.gpm_returns: dict[int, int] = {}
        self.mig_mode = self.is_mig
        self.used_bytes = 7_800_000
        self.memory_busy_percent = 30
        self._failing = set(failing)
        self._answers: dict[str, Callable[..., object]] = {
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda index: "board",
            "nvmlDeviceGetHandleByUUID": self._handle_by_uuid,
            "nvmlDeviceGetName": lambda handle: "NVIDIA H100",
            "nvmlDeviceIsMigDeviceHandle": lambda handle: int(self.is_mig),
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda handle: "board",
            "nvmlDeviceGetClockInfo": self._clock_mhz,
            "nvmlDeviceGetMaxClockInfo": lambda handle, kind: 1980,
            "nvmlDeviceGetPowerUsage": lambda handle: self._of_board(handle, self.power_mw),
            "nvmlDeviceGetPowerManagementLimit": lambda handle: 700_000,
            "nvmlDeviceGetTemperature": lambda handle, sensor: 41,
            "nvmlDeviceGetTemperatureV": lambda handle, sensor: 42,
            "nvmlDeviceGetMemoryInfo": self._memory,
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(
                gpu=100, memory=self.memory_busy_percent
            ),
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: self.reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: self.reasons,
            "nvmlDeviceGetComputeRunningProcesses": self._processes,
            "nvmlDeviceGetMigMode": lambda handle: [int(self.mig_mode)] * 2,
            "nvmlSystemGetDriverVersion": lambda: b"570.86",
            "nvmlShutdown": self._shutdown,
            "nvmlDeviceGetTotalEnergyConsumption": lambda handle: self._of_board(
                handle, self.energy_mj
            ),
            "nvmlDeviceGetViolationStatus": lambda handle, policy: SimpleNamespace(
                violationTime=self.violation_ns[policy], referenceTime=0
            ),
            "nvmlGpmQueryDeviceSupport": lambda handle: SimpleNamespace(
                isSupportedDevice=int(self.has_gpm)
            ),
            "nvmlGpmSampleAlloc": lambda: object(),
            "nvmlGpmSampleGet": lambda handle, sample: sample,
            "nvmlGpmSampleFree": lambda sample: None,
            "nvmlGpmMetricsGet": self._gpm_metrics,
        }

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name not in self._answers:
            raise AttributeError(name)
        if name in self._failing:
            return self._raise
        return self._answers[name]

    def _raise(self, *_: object, **__: object) -> None:
        raise FakeNotSupportedError("Not Supported")

    def _handle_by_uuid(self, uuid: str) -> str:
        if uuid != self.uuid:
            raise FakeNvmlError("Not Found")
        return "instance" if self.is_mig else "board"

    def _of_board(self, handle: str, value: int) -> int:
        if handle != "board":
            raise FakeNvmlError("Not Supported on a MIG instance")
        return value

    def _clock_mhz(self, handle: str, kind: int) -> int:
        return self._of_board(handle, {1: 1755, 2: 2619}[kind])

    def _memory(self, handle: str, version: int | None = None) -> Any:
        # An idle A100: the first version counts 904 MB of the driver's reserve as used.
        if version == self.nvmlMemory_v2:
            return SimpleNamespace(used=self.used_bytes, reserved=904_200_000, total=40_000_000_000)
        return SimpleNamespace(used=self.used_bytes + 904_200_000, total=40_000_000_000)

    def _processes(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self.pids]

    @staticmethod
    def c_nvmlGpmMetricsGet_t() -> Any:  # noqa: N802 (pynvml's name)
        blank = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(8)]
        return SimpleNamespace(metrics=blank)

    def _gpm_metrics(self, request: Any) -> None:
        for metric in request.metrics[: request.numMetrics]:
            metric.value = self.gpm_percent[metric.metricId]
            metric.nvmlReturn = self.gpm_returns.get(metric.metricId, 0)

    def _shutdown(self) -> None:
        self.shutdowns += 1


class FakeNvtx:
    """The module torch.cuda.nvtx, and a device that remembers in which ranges it was given work."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.launched_in: list[str] = []

    def range_push(self, msg: str) -> None:
        self.open.append(msg)

    def range_pop(self) -> None:
        self.open.pop()

    def launch(self) -> None:
        self.launched_in.append("/".join(self.open))
