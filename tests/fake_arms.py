"""Arms of a gate without processes: each says how fast it is, and what happens to it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np

from llmprof.errors import LlmprofError
from llmprof.experiments.arm_messages import PROTOCOL, ArmCounters, ArmDescription, Turn
from llmprof.experiments.arm_process import ArmPlan
from llmprof.schema.run import Contention, Round
from tests.records import QUIET, a_run_record

RECORD = a_run_record(rounds=1, noise=0.0)


@dataclass
class FakeMachine:
    """Stands in for `gate_arms.ArmProcess`: called with a plan, it gives an arm."""

    slower: float = 1.0
    """Candidate over baseline."""
    noise: float = 0.01
    contention: Contention = QUIET
    outputs: dict[str, str] = field(default_factory=dict)
    """Label -> hash of its tokens."""
    relaunched: dict[str, dict[str, object]] = field(default_factory=dict)
    """Label -> what differs in the description of every launch after its first."""
    counters: dict[str, dict[str, float]] = field(default_factory=dict)
    fails: LlmprofError | BaseException | None = None
    fingerprint: str = "0123456789abcdef"
    baseline: str = "base.yaml"
    opened: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(8)

    def __call__(self, plan: ArmPlan) -> "FakeArm":
        return FakeArm(self, plan)


@dataclass
class FakeArm:
    machine: FakeMachine
    plan: ArmPlan

    def __enter__(self) -> "FakeArm":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def open(self) -> ArmDescription:
        self.machine.opened.append(self.plan.label)
        if self.machine.fails is not None:
            raise self.machine.fails
        environment = RECORD.environment.model_copy(
            update={"fingerprint": self.machine.fingerprint}
        )
        description = ArmDescription(
            protocol=PROTOCOL,
            environment=environment,
            model=RECORD.model,
            engine=RECORD.engine.model_copy(update={"weights_checksum": "0f" * 8}),
            output_sha256=self.machine.outputs.get(self.plan.label, "same"),
            output_tokens=((7, 8, 9),),
            settled=True,
        )
        if self.machine.opened.count(self.plan.label) == 1:
            return description
        return description.model_copy(update=self.machine.relaunched.get(self.plan.label, {}))

    def turn(self, seconds: float) -> Turn:
        machine = self.machine
        scale = float(np.exp(machine.rng.normal(0.0, machine.noise)))
        if self.plan.label != machine.baseline:
            scale *= machine.slower
        return Turn(rounds=(_scaled(RECORD.rounds[0], scale, machine.contention),))

    def count(self, *, ops: bool) -> ArmCounters:
        values = {"decode.ops_per_token": 304.0} if ops else {}
        return ArmCounters(values=values | self.machine.counters.get(self.plan.label, {}))


def _scaled(one: Round, scale: float, contention: Contention) -> Round:
    steps = []
    start_s = 0.0
    for step in one.steps:
        duration_s = scale * step.duration_s
        steps.append(step.model_copy(update={"start_s": start_s, "duration_s": duration_s}))
        start_s += duration_s
    return one.model_copy(update={"steps": tuple(steps), "contention": contention})


Fake = Callable[[FakeMachine], FakeMachine]
"""Puts the machine in place of the arms' processes."""


def write_settings(
    path: Path, gate: str = "  tolerance: 0.05\n", model: str = "some-model"
) -> None:
    path.write_text(f"model: {model}\n\ngate:\n{gate}")
