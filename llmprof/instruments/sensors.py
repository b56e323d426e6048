"""What a GPU's sensors say about one round: NVML at its ends, the clock all along."""

from collections.abc import Iterator
from contextlib import contextmanager

from llmprof.instruments.clock_sampler import PERIOD_S, ClockSampler, SampledClock
from llmprof.instruments.nvml import NvmlSession, NvmlUnavailable
from llmprof.instruments.power_sampler import PowerSampler
from llmprof.schema.run import DeviceTelemetry


class Sensors:
    """A round within `during()`, then `read()`. On a CPU there are none, and nothing is done."""

    def __init__(
        self,
        nvml: NvmlSession | NvmlUnavailable | None,
        origin_ns: int,
        *,
        period_s: float = PERIOD_S,
    ) -> None:
        """`nvml`: None on a CPU; `origin_ns`: start of the run by `time.perf_counter_ns`."""
        self._nvml = nvml
        self._period_s = period_s
        self._sampler = (
            ClockSampler(nvml.sm_clock_hz, origin_ns, period_s=period_s)
            if isinstance(nvml, NvmlSession)
            else None
        )
        self._clock = SampledClock((), 0.0)

    @property
    def sampler_cpu_s(self) -> float:
        """CPU time of the thread that read the clock during the last round."""
        return self._clock.cpu_s

    @contextmanager
    def during(self) -> Iterator[None]:
        """However the round ends, nothing reads the clock after it."""
        if not isinstance(self._nvml, NvmlSession) or self._sampler is None:
            yield
            return
        self._nvml.start()
        self._sampler.start()
        try:
            yield
        finally:
            self._clock = self._sampler.stop()

    def read(self) -> DeviceTelemetry | None:
        """Of the round that has just ended. None on a CPU; of a GPU without NVML nothing but the reason."""
        if isinstance(self._nvml, NvmlUnavailable):
            return DeviceTelemetry(missing={"nvml": self._nvml.reason})
        if self._nvml is None:
            return None
        clock = self._clock
        telemetry = self._nvml.read()
        missing = dict(telemetry.missing)
        if not clock.samples:
            why = f"the round was shorter than the {self._period_s} s between two readings"
            missing["sm_clock_samples"] = missing.get("sm_clock_hz", why)
        return telemetry.model_copy(update={"sm_clock_samples": clock.samples, "missing": missing})

    def sm_clock_hz(self) -> float | None:
        """Now; None on a CPU, and where NVML does not tell."""
        return self._nvml.sm_clock_hz() if isinstance(self._nvml, NvmlSession) else None

    def power_sampler(self) -> PowerSampler | None:
        """Of a GPU that has no counter of its energy, and tells its power; else None."""
        nvml = self._nvml
        if not isinstance(nvml, NvmlSession) or not nvml.lacks_energy() or nvml.power_w() is None:
            return None
        return PowerSampler(nvml.power_w)

    def counts_energy(self) -> bool:
        return isinstance(self._nvml, NvmlSession) and self._nvml.counts_energy()
