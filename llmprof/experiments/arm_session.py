"""One arm of a gate in its own process: a loaded, warm workload that runs when it is its turn."""

from dataclasses import dataclass, field

from llmprof.analysis.metrics import PEAK_MEMORY, engine_counters, op_counters
from llmprof.analysis.settling import MIN_WARMUP_ROUNDS, has_settled, phase_medians
from llmprof.architectures.source import resolve_model
from llmprof.engine.device import resolve_device
from llmprof.engine.engine import Engine
from llmprof.engine.open_workload import open_workload
from llmprof.engine.unused_settings import check_all_used
from llmprof.engine.workload import Workload
from llmprof.errors import MeasurementFailedError
from llmprof.experiments.arm_messages import PROTOCOL, ArmCounters, ArmDescription, Turn
from llmprof.experiments.output_tokens import written_tokens
from llmprof.instruments.canary import Canary
from llmprof.instruments.clock import HostClock, device_timer
from llmprof.instruments.contention import ContentionMeter
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.nvml import NvmlSession, open_nvml
from llmprof.instruments.op_recorder import OpRecorder
from llmprof.instruments.peak_memory import peak_memory_bytes
from llmprof.instruments.snapshot import resolve_threads, snapshot
from llmprof.instruments.tracer import StepTracer
from llmprof.schema.cost import Phase
from llmprof.schema.environment import Environment
from llmprof.schema.run import Round
from llmprof.schema.settings import RunConfig

MAX_WARMUP_ROUNDS = 6
"""Fewer than a run takes: what drifts on is common to both arms."""


@dataclass
class ArmSession:
    """A workload between its turns. No ceilings: those of one machine cancel in the ratio."""

    workload: Workload
    environment: Environment
    output_sha256: str | None = None
    settled: bool = False
    num_rounds: int = 0
    clock: HostClock = field(default_factory=HostClock)

    @classmethod
    def open(cls, config: RunConfig) -> "ArmSession":
        """Load and warm up. Raises what loading a model raises."""
        check_all_used(config)
        device = resolve_device(config.device)
        threads = resolve_threads(config.execution.threads)
        engine = Engine.load(
            resolve_model(config.model, weights=config.weights.source),
            config,
            device=device,
            threads=threads,
            host_available_bytes=host_memory().available_bytes,
        )
        session = cls(open_workload(engine, config), snapshot(device, threads))
        session.warm_up()
        return session

    def __post_init__(self) -> None:
        self.origin_ns = self.clock.now_ns()
        self.timer = device_timer(self.environment.device)
        self.meter = ContentionMeter(self.environment.threads, canary=Canary())
        self.nvml = open_nvml(self.environment.gpu.uuid) if self.environment.gpu else None

    def warm_up(self) -> None:
        """Rounds until steps no longer get faster, or as many as are allowed."""
        history: list[dict[Phase, float]] = []
        while not self.settled and len(history) < MAX_WARMUP_ROUNDS:
            history.append(phase_medians(self._round().steps))
            self.settled = len(history) >= MIN_WARMUP_ROUNDS and has_settled(history)

    def describe(self) -> ArmDescription:
        return ArmDescription(
            protocol=PROTOCOL,
            environment=self.environment,
            model=self.workload.model,
            engine=self.workload.describe(),
            output_sha256=self.output_sha256,
            output_tokens=written_tokens(self.workload),
            settled=self.settled,
        )

    def turn(self, seconds: float) -> Turn:
        """Rounds that take so long together, at least one."""
        rounds: list[Round] = []
        self.workload.lead_in()  # the other arm has had the caches
        end_ns = self.clock.now_ns() + int(1e9 * seconds)
        while not rounds or self.clock.now_ns() < end_ns:
            rounds.append(self._round())
        return Turn(rounds=tuple(rounds))

    def count(self, *, ops: bool) -> ArmCounters:
        """Bytes held, the peak so far, and with `ops` the operators of a round that is not timed."""
        values = {
            **engine_counters(self.workload.describe()),
            PEAK_MEMORY: peak_memory_bytes(self.environment.device),
        }
        if ops:
            recorder = OpRecorder()
            with recorder:
                self.workload.run_round(recorder)
            values |= op_counters(recorder.steps())
        return ArmCounters(values={name: one for name, one in values.items() if one is not None})

    def _round(self) -> Round:
        tracer = StepTracer(self.clock, self.timer, self.origin_ns)
        self.meter.start()
        digest = self.workload.run_round(tracer)
        contention = self.meter.stop()
        self._check_outputs(digest)
        details = self.workload.round_details()
        index, self.num_rounds = self.num_rounds, self.num_rounds + 1
        return Round(
            index=index,
            before=None,
            after=None,
            steps=tracer.samples(),
            contention=contention,
            telemetry=self.nvml.read() if isinstance(self.nvml, NvmlSession) else None,
            requests=details.requests,
            events=details.events,
            compiled_steps=details.compiled_steps,
        )

    def _check_outputs(self, digest: str | None) -> None:
        if self.num_rounds == 0:
            self.output_sha256 = digest
        elif digest != self.output_sha256:
            raise MeasurementFailedError(
                "two rounds of the same greedy workload gave different tokens",
                remedy="Check the machine's memory and the kernels before trusting a figure",
            )
