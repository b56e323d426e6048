"""What a GPU counts up by itself: energy, and time in which it held its clocks back.

A sample of the event reasons may miss what happened between two samples; a counter does not.
Source: nvml.h, nvmlDeviceGetTotalEnergyConsumption (mJ since the driver was loaded, Volta and newer)
and nvmlDeviceGetViolationStatus (ns since the driver was loaded).
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from llmprof.instruments.nvml_questions import Questions

LEAST_ENERGY_S: Final = 1.0
"""The energy counter moves in steps of some 20 to 100 ms (`analysis.telemetry.ENERGY_STEP_S`): a
shorter interval says little."""
_POLICIES: Final = {"power": "NVML_PERF_POLICY_POWER", "thermal": "NVML_PERF_POLICY_THERMAL"}
_NS_PER_S: Final = 1e9
_MJ_PER_J: Final = 1e3


@dataclass(frozen=True, slots=True)
class CounterReading:
    """Since `start`; fields that could not be read are in `missing`."""

    energy_j: float | None
    held_back_s: dict[str, float]
    """By cause: power, thermal."""
    interval_s: float
    missing: dict[str, str]


class AccumulatedCounters:
    """`start()`, the round, `stop()`."""

    def __init__(
        self, nvml: Any, board: Any, *, now_s: Callable[[], float] = time.perf_counter
    ) -> None:
        self._nvml = nvml
        self._board = board
        self._now_s = now_s
        self._begin_s = 0.0
        self._before: dict[str, int] = {}

    def start(self) -> None:
        self._before, _ = self._read()
        self._begin_s = self._now_s()

    def stop(self) -> CounterReading:
        interval_s = self._now_s() - self._begin_s
        after, missing = self._read()
        grown = {name: after[name] - self._before[name] for name in after if name in self._before}
        for name, difference in list(grown.items()):
            if difference < 0:
                missing[name] = "the counter went backwards: the driver was loaded again"
                del grown[name]
        if interval_s < LEAST_ENERGY_S and grown.pop("energy_j", None) is not None:
            missing["energy_j"] = (
                f"the round took {interval_s:.2f} s, and the energy counter needs {LEAST_ENERGY_S} s"
            )
        energy_mj = grown.get("energy_j")
        return CounterReading(
            energy_j=None if energy_mj is None else energy_mj / _MJ_PER_J,
            held_back_s={
                cause: grown[f"held_back_s.{cause}"] / _NS_PER_S
                for cause in _POLICIES
                if f"held_back_s.{cause}" in grown
            },
            interval_s=interval_s,
            missing=missing,
        )

    def counts_energy(self) -> bool:
        """Whether the device has that counter, however short the interval."""
        return "energy_j" in self._read()[0]

    def lacks_energy(self) -> bool:
        """Whether the device says that it has no such counter: another failure may pass."""
        nvml = self._nvml
        try:
            nvml.nvmlDeviceGetTotalEnergyConsumption(self._board)
        except nvml.NVMLError_NotSupported:
            return True
        except (nvml.NVMLError, AttributeError):
            return False
        return False

    def _read(self) -> tuple[dict[str, int], dict[str, str]]:
        """Raw counters by field, and why the others are not there."""
        nvml, board = self._nvml, self._board
        questions = Questions((nvml.NVMLError, AttributeError))
        found = {
            "energy_j": questions.ask(
                "energy_j", lambda: int(nvml.nvmlDeviceGetTotalEnergyConsumption(board))
            )
        }
        for cause, policy in _POLICIES.items():
            name = f"held_back_s.{cause}"
            found[name] = questions.ask(name, functools.partial(self._held_back_ns, policy))
        return {
            name: value for name, value in found.items() if value is not None
        }, questions.missing

    def _held_back_ns(self, policy: str) -> int:
        nvml = self._nvml
        status = nvml.nvmlDeviceGetViolationStatus(self._board, getattr(nvml, policy))
        return int(status.violationTime)
