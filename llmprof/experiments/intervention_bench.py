"""The engine of a recorded run, loaded again, and how rounds of it are timed in turn."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from llmprof.analysis.phases import round_steps
from llmprof.architectures.source import resolve_model
from llmprof.ceilings.live import LiveCeilings
from llmprof.engine.engine import Engine
from llmprof.engine.engine_workload import EngineWorkload
from llmprof.engine.probe import Probe
from llmprof.engine.workload import CeilingNeeds
from llmprof.instruments.clock import HostClock, device_timer
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.tracer import StepTracer
from llmprof.schema.cost import Phase
from llmprof.schema.run import RunRecord, StepSample
from llmprof.schema.settings import RunConfig

Steps = dict[Phase, float]
"""Median step of one round, by phase."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of running the workload."""

    needs: CeilingNeeds
    run: Callable[[], Steps]


@dataclass(slots=True)
class InterventionBench:
    config: RunConfig
    record: RunRecord
    engine: Engine
    pairs: int
    clock: HostClock = field(default_factory=HostClock)

    @classmethod
    def open(cls, config: RunConfig, record: RunRecord, *, pairs: int) -> "InterventionBench":
        """Load the model again: the record's own workload has given its memory back.

        Raises:
            LlmprofError: as for the run itself.
        """
        environment = record.environment
        engine = Engine.load(
            resolve_model(config.model, weights=config.weights.source),
            config,
            device=environment.device,
            threads=environment.threads,
            host_available_bytes=host_memory().available_bytes,
        )
        return cls(config, record, engine, pairs)

    @property
    def device(self) -> str:
        return self.record.environment.device

    @property
    def threads(self) -> int:
        return self.record.environment.threads

    def arm(
        self,
        *,
        engine: Engine | None = None,
        config: RunConfig | None = None,
        wrap: Callable[[Probe], Probe] = lambda probe: probe,
        device_only: bool = False,
    ) -> Arm:
        """The workload, warmed up by one round; with another engine, settings or observer.

        `device_only`: timed by the device's clock alone, however long the host takes to enqueue.
        """
        workload = EngineWorkload(engine or self.engine, config or self.config)
        timer = device_timer(self.device)

        def run() -> Steps:
            tracer = StepTracer(self.clock, timer, self.clock.now_ns())
            workload.lead_in()
            workload.run_round(wrap(tracer))
            return medians(tracer.samples(), device_only=device_only)

        run()
        return Arm(workload.needs, run)

    def in_turn(self, base: Arm, changed: Arm) -> list[tuple[Steps, Steps]]:
        return [(base.run(), changed.run()) for _ in range(self.pairs)]

    def live(self, needs: CeilingNeeds) -> LiveCeilings:
        return LiveCeilings(
            needs,
            self.record.environment,
            measured=self.record.ceilings,
            skinny_formats=needs.skinny_formats,
        )

    def step_s(self, phase: Phase) -> float | None:
        """Median of the clean pass."""
        samples = [step for one in self.record.rounds for step in one.steps]
        return medians(samples).get(phase)

    def enqueue_s(self, phase: Phase) -> float | None:
        """Median over rounds of the host's own time of a step; None where the phase never ran."""
        taken = [step.host_s for step in round_steps(self.record.rounds, phase)]
        return statistics.median(taken) if taken else None


def medians(samples: Sequence[StepSample], *, device_only: bool = False) -> Steps:
    """Of the longer of host and device time, or of device time where there is one; by phase."""

    def time_s(one: StepSample) -> float:
        if device_only and one.device_s is not None:
            return one.device_s
        return max(one.duration_s, one.device_s or 0.0)

    return {
        phase: statistics.median(time_s(one) for one in samples if one.shape.phase is phase)
        for phase in dict.fromkeys(one.shape.phase for one in samples)
    }


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """So many, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
