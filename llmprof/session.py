"""The rounds of one measurement: warm-up, counting, then clean, grouped and traced ones between readings."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime

from llmprof import units
from llmprof.analysis.settling import has_settled, phase_medians, steady_step_s
from llmprof.ceilings.live import LiveCeilings
from llmprof.engine.capabilities import serves_requests
from llmprof.engine.kernels.launch import observed_calls
from llmprof.engine.probe import Probe, wants_ops
from llmprof.engine.workload import StepUse, Workload
from llmprof.errors import MeasurementFailedError
from llmprof.instruments.canary import Canary
from llmprof.instruments.clock import NS_PER_S, HostClock, device_timer
from llmprof.instruments.contention import ContentionMeter
from llmprof.instruments.hold_back import hold_back, seconds_to_enqueue
from llmprof.instruments.injection import QueueAhead
from llmprof.instruments.nvml import open_nvml
from llmprof.instruments.nvtx_ranges import NvtxRanges, open_ranges
from llmprof.instruments.op_recorder import OpRecorder, first_and_last_of_each_phase
from llmprof.instruments.own_cost import measure_own_cost
from llmprof.instruments.power_sampler import AVERAGED_S
from llmprof.instruments.sensors import Sensors
from llmprof.instruments.timelines import TRACED_ROUNDS, Timeline, TracingPass
from llmprof.instruments.tracer import GroupTracer, StepTracer
from llmprof.schema.ceilings import CeilingReading, Ceilings
from llmprof.schema.cost import Phase
from llmprof.schema.environment import Environment
from llmprof.schema.measurement import Caveat
from llmprof.schema.run import (
    Contention,
    CountedStep,
    EnergyWindow,
    OwnCost,
    Round,
    StepSample,
    Warmup,
)
from llmprof.schema.settings import Pass, RunConfig
from llmprof.schema.trace import Trace
from llmprof.store.progress import Progress

MAX_WARMUP_ROUNDS = 8
BUSY_RUN_QUEUE_FRACTION = 0.15
ENERGY_WINDOW_S = 1.5
"""Of rounds back to back, where each is too short for the energy counter."""

_UNOBSERVED = nullcontext()

Injection = Callable[[Probe], Probe]
"""Wraps the observer of every round to add a known cost: the test of the ledger itself."""


def _as_it_is(probe: Probe) -> Probe:
    return probe


@dataclass
class Session:
    """The rounds of one measurement, as far as they got."""

    workload: Workload
    config: RunConfig
    environment: Environment
    ceilings: Ceilings
    progress: Progress
    inject: Injection
    before_saving: Callable[[], None]
    rounds: list[Round] = field(default_factory=list)
    grouped: list[Round] = field(default_factory=list)
    counted: tuple[CountedStep, ...] = ()
    traced: list[Round] = field(default_factory=list)
    trace: Trace | None = None
    energy: EnergyWindow | None = None
    warmup: Warmup = field(default_factory=lambda: Warmup(rounds=0, settled=None))
    caveats: list[Caveat] = field(default_factory=list)
    output_sha256: str | None = None
    interrupted: str | None = None
    failed: bool = False
    busy: bool = False

    def __post_init__(self) -> None:
        self.created = datetime.now(UTC)
        self.clock = HostClock()
        self.origin_ns = self.clock.now_ns()
        self.timer = device_timer(self.environment.device)
        self.meter = ContentionMeter(self.environment.threads, canary=Canary())
        gpu = self.environment.gpu
        self.sensors = Sensors(open_nvml(gpu.uuid) if gpu else None, self.origin_ns)
        self.sampler_cpu_s = 0.0
        self.live = LiveCeilings(
            self.workload.needs,
            self.environment,
            measured=self.ceilings,
            skinny_formats=self.workload.needs.skinny_formats,
            sm_clock_hz=self.sensors.sm_clock_hz,
        )

    def warm_up(self) -> None:
        """Run rounds until the steps of every phase have settled, or as often as the settings say."""
        wanted = self.config.measure.warmup
        most = MAX_WARMUP_ROUNDS if wanted == "auto" else wanted
        history: list[dict[Phase, float]] = []
        settled = False
        while not settled and len(history) < most:
            self.progress.update("warm-up", len(history), most)
            tracer = self._step_tracer()
            self.meter.start()
            self._run(tracer)
            self._tell_if_busy(self.meter.stop())
            history.append(phase_medians(tracer.samples()))
            settled = wanted == "auto" and has_settled(history)
        self.warmup = Warmup(
            rounds=len(history),
            settled=settled if wanted == "auto" else None,
            step_s=tuple(steady_step_s(medians) for medians in history),
        )

    def _tell_if_busy(self, contention: Contention) -> None:
        """Warn early: spinning threads that wait for each other make a shared machine crawl."""
        waited = contention.run_queue_fraction
        if waited is not None and waited > BUSY_RUN_QUEUE_FRACTION and not self.busy:
            self.busy = True
            self.progress.note(
                f"other processes use this machine ({units.percent(waited)} of the time this one "
                "waits for a CPU): the run will be slow and may have no verdict; stop them, or "
                "leave them a core with --threads"
            )

    def count(self) -> None:
        """Record the operators of one round as torch dispatches them: never in a timed round."""
        if Pass.COUNTING not in self.config.measure.passes:
            return
        self.progress.note("counting operators")
        recorder = OpRecorder()
        with recorder:
            self.workload.run_round(recorder)
        self.counted = first_and_last_of_each_phase(recorder.steps())

    def measure_rounds(self) -> None:
        """Clean and grouped rounds in turn, each between two live readings of the ceilings."""
        total = self.config.measure.rounds
        try:
            reading = self._reading()
            for index in range(total):
                self.progress.update("rounds", index, total)
                reading = self._clean_round(index, reading)
                if Pass.GROUPED in self.config.measure.passes:
                    reading = self._grouped_round(index, reading)
            self.progress.update("rounds", total, total)
            self._measure_energy()
            self._mark_round()
            self._trace_rounds(reading)
            self.before_saving()
        except (KeyboardInterrupt, MeasurementFailedError) as stop:
            self.before_saving()
            if not self.rounds:
                raise
            self.failed = isinstance(stop, MeasurementFailedError)
            why = f"failed ({stop})" if self.failed else "interrupted"
            self.interrupted = f"{why} after {len(self.rounds)} of {total} rounds"

    def _measure_energy(self) -> None:
        """Of rounds that are each too short for the counter: of several, with nothing in between."""
        known = any(one.telemetry and one.telemetry.energy_j is not None for one in self.rounds)
        if known:
            return
        if not self.sensors.counts_energy():
            self._estimate_energy()
            return
        self.progress.note("measuring energy")
        with self.sensors.during():
            rounds = self._rounds_for(ENERGY_WINDOW_S)
        telemetry = self.sensors.read()
        if telemetry and telemetry.energy_j is not None and telemetry.interval_s:
            self.energy = EnergyWindow(
                rounds=rounds, energy_j=telemetry.energy_j, interval_s=telemetry.interval_s
            )

    def _estimate_energy(self) -> None:
        """Of a device that has no counter: from its power, once that is of these rounds alone."""
        sampler = self.sensors.power_sampler()
        if sampler is None:
            return
        self.progress.note("estimating energy from power")
        self._rounds_for(AVERAGED_S)
        sampler.start()
        try:
            rounds = self._rounds_for(ENERGY_WINDOW_S)
        finally:
            found = sampler.stop()
        if found is not None:
            self.energy = EnergyWindow(
                rounds=rounds,
                energy_j=found.energy_j,
                interval_s=found.interval_s,
                power_samples=found.samples,
            )

    def _rounds_for(self, seconds: float) -> int:
        """How many rounds, back to back, took so long."""
        rounds, begin_ns = 0, self.clock.now_ns()
        while self.clock.now_ns() - begin_ns < seconds * NS_PER_S:
            self._run(self._step_tracer())
            rounds += 1
        return rounds

    def _mark_round(self) -> None:
        """One round for a profiler that is attached from outside; nothing of it is kept."""
        if Pass.NVTX in self.config.measure.passes:
            self.progress.note("a round with NVTX ranges")
            self._run(NvtxRanges(self._step_tracer(), open_ranges(self.environment.device)))

    def _trace_rounds(self, reading: CeilingReading) -> None:
        """Time every op of a few rounds, last of all: recording may leave the process slower."""
        if Pass.TRACING not in self.config.measure.passes:
            return
        tracing = TracingPass(self.clock, self.timer, self.origin_ns)
        steps = []
        for index in range(TRACED_ROUNDS):
            self.progress.update("tracing", index, TRACED_ROUNDS)
            timeline = tracing.timeline()
            round_ = self._round(index, reading, timeline, _observed(timeline))
            self.traced.append(round_)
            steps.append(timeline.steps())
            reading = round_.after or reading
        self.trace = tracing.trace(steps)

    def paired_round(self, index: int, *, grouped: bool) -> None:
        """One round between two readings of its own, in turn with those of another session."""
        (self._grouped_round if grouped else self._clean_round)(index, self._reading())

    def _clean_round(self, index: int, before: CeilingReading) -> CeilingReading:
        round_ = self._round(index, before, self._step_tracer())
        self.sampler_cpu_s += self.sensors.sampler_cpu_s
        self.rounds.append(round_)
        return round_.after or before

    def _grouped_round(self, index: int, before: CeilingReading) -> CeilingReading:
        """Kernels back to back where a device runs behind the host: no group waits for a launch."""
        tracer = GroupTracer(self.clock, self.timer, self.origin_ns)
        hold = self._hold_back()
        wrap: Injection = (lambda probe: QueueAhead(probe, hold)) if hold else _as_it_is
        round_ = self._round(index, before, tracer, wrap=wrap)
        self.grouped.append(round_.model_copy(update={"held_back": hold is not None}))
        return round_.after or before

    def _hold_back(self) -> Callable[[], None] | None:
        """None on a CPU, and for requests: what arrives in the meantime would change the batches."""
        if self.timer is None or serves_requests(self.config):
            return None
        steps = [step for one in self.rounds[-1:] for step in one.steps]
        return hold_back(self.environment.device, seconds_to_enqueue(steps))

    def _round(
        self,
        index: int,
        before: CeilingReading,
        tracer: StepTracer | Timeline,
        around: AbstractContextManager[object] = _UNOBSERVED,
        wrap: Injection = _as_it_is,
    ) -> Round:
        self.workload.lead_in()
        with self.sensors.during():
            self.meter.start()
            with around:
                self._run(wrap(tracer))
            contention = self.meter.stop()
        telemetry = self.sensors.read()
        details = self.workload.round_details()
        return Round(
            index=index,
            before=before,
            after=self._reading(),
            steps=_with_use(tracer.samples(), details.steps),
            contention=contention,
            telemetry=telemetry,
            requests=details.requests,
            events=details.events,
            compiled_steps=details.compiled_steps,
        )

    def _step_tracer(self) -> StepTracer:
        return StepTracer(self.clock, self.timer, self.origin_ns)

    def _run(self, probe: Probe) -> None:
        digest = self.workload.run_round(self.inject(probe))
        if self.output_sha256 is None:
            self.output_sha256 = digest
        elif digest != self.output_sha256 and not self.caveats:
            self.caveats.append(
                Caveat(
                    code="outputs-differ",
                    message="two rounds of the same greedy workload gave different tokens",
                    remedy="check the machine's memory and the kernels before trusting a figure",
                )
            )

    def own_cost(self) -> OwnCost:
        steps = [step for round_ in self.grouped for step in round_.steps]
        return measure_own_cost(self.clock, self.timer, steps, sampler_cpu_s=self.sampler_cpu_s)

    def _reading(self) -> CeilingReading:
        return self.live.read((self.clock.now_ns() - self.origin_ns) / 1e9)


@contextmanager
def _observed(timeline: Timeline) -> Iterator[None]:
    """While a traced round runs, and not while the ceilings are read after it."""
    own_kernels = observed_calls(timeline) if wants_ops(timeline) else nullcontext()
    with own_kernels, timeline:
        yield


def _with_use(samples: tuple[StepSample, ...], uses: tuple[StepUse, ...]) -> tuple[StepSample, ...]:
    """How full cache and batch were, beside each step's time."""
    if not uses:
        return samples
    return tuple(
        sample.model_copy(update={"kv": use.kv, "batch": use.batch})
        for sample, use in zip(samples, uses, strict=True)
    )
