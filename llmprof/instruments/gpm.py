"""NVML's GPU performance monitoring: hardware counters of Hopper and newer, without a profiler.

Activities are averages between two samples, of the whole device and of every process on it. A
sample is refreshed every 100 ms, so a window below 250 ms says nothing. DRAM activity is a share of
the theoretical bandwidth and never reaches 1: what our own read kernel reaches under it is the
measure (`calibrate`). Source: nvml.h, nvmlGpmMetricsGet.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

LEAST_WINDOW_S: Final = 0.25
LARGEST: Final = 1.05
"""Some drivers report a little more than all; more than that is no measurement."""
METRICS: Final = {
    "sm_activity": 2,
    "sm_occupancy": 3,
    "tensor_activity": 5,
    "dram_activity": 10,
}
"""nvmlGpmMetricId_t: SM_UTIL, SM_OCCUPANCY, ANY_TENSOR_UTIL, DRAM_BW_UTIL, each in per cent."""
_OLD_DRIVER: Final = "this driver has no GPM (it came with R520)"


@dataclass(frozen=True, slots=True)
class GpmUnavailable:
    reason: str


@dataclass(frozen=True, slots=True)
class GpmReading:
    """Shares between 0 and 1; null where `missing` says why."""

    sm_activity: float | None = None
    sm_occupancy: float | None = None
    tensor_activity: float | None = None
    dram_activity: float | None = None
    missing: dict[str, str] = field(default_factory=dict)


def open_gpm(nvml: Any, handle: Any, *, is_mig: bool) -> "GpmSampler | GpmUnavailable":
    """A sampler for a whole GPU.

    Not for a MIG instance: asking for one made later memory queries fail on some drivers, and the
    counters of the board are not those of the instance.
    """
    if is_mig:
        return GpmUnavailable("GPM is not read on a MIG instance")
    try:
        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            return GpmUnavailable("this GPU has no GPM: Hopper and newer have it")
        return GpmSampler(nvml, handle)
    except nvml.NVMLError as error:
        return GpmUnavailable(str(error))
    except AttributeError:
        return GpmUnavailable(_OLD_DRIVER)


class GpmSampler:
    """`start()`, the work (ended by a synchronisation), `stop()`."""

    def __init__(
        self, nvml: Any, handle: Any, *, now_s: Callable[[], float] = time.perf_counter
    ) -> None:
        self._nvml = nvml
        self._handle = handle
        self._now_s = now_s
        self._samples = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        self.least_window_s = LEAST_WINDOW_S
        """A shorter window has no reading."""
        self._begin_s = 0.0
        self._reason: str | None = "the window was not opened"

    def start(self) -> None:
        try:
            self._nvml.nvmlGpmSampleGet(self._handle, self._samples[0])
            self._reason = None
        except (self._nvml.NVMLError, AttributeError) as error:
            self._reason = str(error)
        self._begin_s = self._now_s()

    def stop(self) -> GpmReading:
        """Never fails: each field that could not be had is null with its reason."""
        window_s = self._now_s() - self._begin_s
        if self._reason is None and window_s < self.least_window_s:
            self._reason = f"the window was {window_s:.2f} s, and GPM needs {self.least_window_s} s"
        if self._reason is None:
            try:
                return self._reading()
            except (self._nvml.NVMLError, AttributeError) as error:
                self._reason = str(error)
        return GpmReading(missing=dict.fromkeys(METRICS, self._reason))

    def close(self) -> None:
        """Give the samples back; the sampler may not be used afterwards."""
        for sample in self._samples:
            try:
                self._nvml.nvmlGpmSampleFree(sample)
            except (self._nvml.NVMLError, AttributeError):
                return

    def _reading(self) -> GpmReading:
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(self._handle, self._samples[1])
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(METRICS)
        request.sample1, request.sample2 = self._samples
        for index, metric in enumerate(METRICS.values()):
            request.metrics[index].metricId = metric
        nvml.nvmlGpmMetricsGet(request)
        found: dict[str, float] = {}
        missing: dict[str, str] = {}
        for index, name in enumerate(METRICS):
            value = _share(request.metrics[index])
            if isinstance(value, str):
                missing[name] = value
            else:
                found[name] = value
        return GpmReading(**found, missing=missing)


def _share(metric: Any) -> float | str:
    """Of one metric, or why there is none: each has its own return code, and may be no number."""
    if metric.nvmlReturn != 0:
        return f"NVML error {metric.nvmlReturn} for this metric"
    share = float(metric.value) / 100
    if math.isnan(share):
        return "the driver gave no number"
    if not 0 <= share <= LARGEST:
        return f"the driver gave {100 * share:.0f} %, which cannot be"
    return share


def calibrate(
    sampler: GpmSampler,
    read: Callable[[], object],
    synchronize: Callable[[], None],
    *,
    seconds: float,
    now_s: Callable[[], float] = time.perf_counter,
) -> float | None:
    """DRAM activity while `read` keeps memory busy for so long; None where it could not be had."""
    read()
    synchronize()
    sampler.start()
    deadline_s = now_s() + seconds
    while now_s() < deadline_s:
        read()
        synchronize()
    activity = sampler.stop().dram_activity
    return activity or None
