"""The pipeline: settings in, one RunRecord out. Read this file first."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePath

from llmprof import __version__, units
from llmprof.architectures.source import resolve_model
from llmprof.ceilings.live import LiveCeilings
from llmprof.ceilings.measure import cached_ceilings
from llmprof.engine.device import resolve_device
from llmprof.engine.engine import Engine
from llmprof.engine.open_workload import open_workload
from llmprof.engine.probe import Probe
from llmprof.engine.unused_settings import check_all_used
from llmprof.engine.workload import StepUse, Workload
from llmprof.errors import MeasurementFailedError
from llmprof.instruments.canary import Canary
from llmprof.instruments.clock import HostClock, device_timer
from llmprof.instruments.contention import ContentionMeter
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.nvml import NvmlSession, open_nvml
from llmprof.instruments.op_recorder import OpRecorder
from llmprof.instruments.own_cost import measure_own_cost
from llmprof.instruments.peak_memory import peak_memory_bytes
from llmprof.instruments.snapshot import resolve_threads, snapshot
from llmprof.instruments.tracer import GroupTracer, StepTracer
from llmprof.schema.ceilings import CeilingReading, Ceilings
from llmprof.schema.cost import Phase
from llmprof.schema.environment import Environment
from llmprof.schema.measurement import Caveat
from llmprof.schema.run import (
    Contention,
    CountedStep,
    OwnCost,
    Round,
    RunRecord,
    StepSample,
    Tool,
    Warmup,
)
from llmprof.schema.settings import Pass, RunConfig
from llmprof.store.progress import NullProgress, Progress
from llmprof.store.runs import new_run_id

SETTLED_WITHIN = 0.03
"""Warm-up ends when two rounds in a row differ by less than this share in their median step."""
MIN_WARMUP_ROUNDS = 2
MAX_WARMUP_ROUNDS = 8
BUSY_RUN_QUEUE_FRACTION = 0.15

Injection = Callable[[Probe], Probe]
"""Wraps the observer of every round to add a known cost: the test of the ledger itself."""


def profile(
    config: RunConfig,
    *,
    argv: tuple[str, ...] = (),
    progress: Progress | None = None,
    before_saving: Callable[[], None] | None = None,
) -> RunRecord:
    """Measure the model that `config` names, on the device that it names.

    Raises InputError, CapabilityError or MeasurementFailedError before anything is measured, and
    KeyboardInterrupt only if nothing was: a measurement that is interrupted, or fails later, comes
    back as `partial`.
    `before_saving` is called as soon as the rounds have ended: from there on an interrupt would
    lose them.
    """
    progress = progress or NullProgress()
    check_all_used(config)
    device = resolve_device(config.device)
    threads = resolve_threads(config.execution.threads)
    progress.note(f"loading {config.model} on {device}")
    source = resolve_model(config.model, weights=config.weights.source)
    engine = Engine.load(
        source,
        config,
        device=device,
        threads=threads,
        host_available_bytes=host_memory().available_bytes,
    )
    workload = open_workload(engine, config)
    return measure(
        workload,
        config,
        device=device,
        threads=threads,
        argv=argv,
        progress=progress,
        before_saving=before_saving,
    )


def measure(
    workload: Workload,
    config: RunConfig,
    *,
    device: str,
    threads: int,
    argv: tuple[str, ...] = (),
    progress: Progress | None = None,
    inject: Injection | None = None,
    before_saving: Callable[[], None] | None = None,
) -> RunRecord:
    """Measure any workload: ceilings, warm-up, counting, then clean and grouped rounds in turn."""
    progress = progress or NullProgress()
    environment = snapshot(device, threads)
    ceilings = cached_ceilings(environment, device, progress=progress)
    session = _Session(
        workload,
        config,
        environment,
        ceilings,
        progress,
        inject or _unchanged,
        before_saving or _nothing,
    )
    session.warm_up()
    session.count()
    session.measure_rounds()
    return RunRecord(
        id=new_run_id(session.created, config),
        created=session.created,
        status="partial" if session.interrupted else "complete",
        status_reason=session.interrupted,
        failed=session.failed,
        tool=Tool(version=__version__, argv=tuple(PurePath(word).name for word in argv)),
        settings=config,
        environment=environment,
        model=workload.model,
        weights=workload.weights,
        stated_costs=workload.stated_costs,
        engine=workload.describe(),
        ceilings=ceilings,
        warmup=session.warmup,
        rounds=tuple(session.rounds),
        grouped=tuple(session.grouped),
        counted=session.counted,
        own_cost=session.own_cost(),
        output_sha256=session.output_sha256,
        phases=workload.phases,
        peak_memory_bytes=peak_memory_bytes(device),
        caveats=tuple(session.caveats),
    )


def _unchanged(probe: Probe) -> Probe:
    return probe


def _nothing() -> None:
    pass


@dataclass
class _Session:
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
        self.nvml = open_nvml(self.environment.gpu.uuid) if self.environment.gpu else None
        self.live = LiveCeilings(
            self.workload.needs,
            self.environment,
            measured=self.ceilings,
            skinny_formats=self.workload.needs.skinny_formats,
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
            step_s=tuple(_steady_step_s(medians) for medians in history),
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
        self.counted = _first_and_last_of_each_phase(recorder.steps())

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
            self.before_saving()
        except (KeyboardInterrupt, MeasurementFailedError) as stop:
            self.before_saving()
            if not self.rounds:
                raise
            self.failed = isinstance(stop, MeasurementFailedError)
            why = f"failed ({stop})" if self.failed else "interrupted"
            self.interrupted = f"{why} after {len(self.rounds)} of {total} rounds"

    def _clean_round(self, index: int, before: CeilingReading) -> CeilingReading:
        round_ = self._round(index, before, self._step_tracer())
        self.rounds.append(round_)
        return round_.after or before

    def _grouped_round(self, index: int, before: CeilingReading) -> CeilingReading:
        tracer = GroupTracer(self.clock, self.timer, self.origin_ns)
        round_ = self._round(index, before, tracer)
        self.grouped.append(round_)
        return round_.after or before

    def _round(self, index: int, before: CeilingReading, tracer: StepTracer) -> Round:
        self.meter.start()
        self._run(tracer)
        contention = self.meter.stop()
        telemetry = self.nvml.read() if isinstance(self.nvml, NvmlSession) else None
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
        return measure_own_cost(self.clock, self.timer, steps)

    def _reading(self) -> CeilingReading:
        return self.live.read((self.clock.now_ns() - self.origin_ns) / 1e9)


def _with_use(samples: tuple[StepSample, ...], uses: tuple[StepUse, ...]) -> tuple[StepSample, ...]:
    """How full cache and batch were, beside each step's time."""
    if not uses:
        return samples
    return tuple(
        sample.model_copy(update={"kv": use.kv, "batch": use.batch})
        for sample, use in zip(samples, uses, strict=True)
    )


def phase_medians(steps: tuple[StepSample, ...]) -> dict[Phase, float]:
    phases = dict.fromkeys(step.shape.phase for step in steps)
    return {
        phase: statistics.median(step.duration_s for step in steps if step.shape.phase is phase)
        for phase in phases
    }


def _steady_step_s(medians: dict[Phase, float]) -> float:
    """Of decode steps where there are any."""
    return medians.get(Phase.DECODE) or next(iter(medians.values()))


def has_settled(history: list[dict[Phase, float]]) -> bool:
    """Two rounds in a row agree in every phase."""
    if len(history) < MIN_WARMUP_ROUNDS:
        return False
    before, last = history[-2:]
    return all(
        phase in before and abs(last[phase] / before[phase] - 1) < SETTLED_WITHIN for phase in last
    )


def _first_and_last_of_each_phase(steps: tuple[CountedStep, ...]) -> tuple[CountedStep, ...]:
    kept: list[CountedStep] = []
    for phase in Phase:
        of_phase = [step for step in steps if step.shape.phase is phase]
        kept += of_phase[:1] + of_phase[1:][-1:]
    return tuple(kept)
