"""Both arms of a gate: started anew for each launch, measured turn by turn in ABBA order."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from llmprof.analysis.metrics import round_values
from llmprof.analysis.pair_validity import usual_canary_hz, why_spoiled
from llmprof.errors import MeasurementFailedError
from llmprof.experiments.arm_messages import ArmDescription, Turn
from llmprof.experiments.arm_process import ArmPlan, ArmProcess
from llmprof.experiments.differing_launches import how_they_differ
from llmprof.schema.gate_result import Look, Pair
from llmprof.schema.run import Round
from llmprof.schema.settings import GateSettings
from llmprof.store.progress import Progress

BASELINE, CANDIDATE = 0, 1
EXTRA_PAIRS: Final = 0.25
"""Of a look's pairs: so many spoiled ones are measured again, then the machine is unstable."""
PAUSE_S: Final = 1.0
"""After a spoiled pair, so that what spoiled it may pass."""


@dataclass
class GateArms:
    """Measures looks, and keeps what it learns of the arms on the way."""

    plans: tuple[ArmPlan, ArmPlan]
    """Baseline, candidate."""
    settings: GateSettings
    metrics: Sequence[str]
    """Timed ones that every pair must have."""
    progress: Progress
    before_first: Callable[[ArmDescription], None] | None = None
    """Asked with the candidate's description as soon as it is known; may raise."""
    pause: Callable[[float], None] = time.sleep
    descriptions: list[ArmDescription] = field(default_factory=list)
    """Of the first launch: baseline, candidate."""
    counters: tuple[list[dict[str, float]], list[dict[str, float]]] = field(
        default_factory=lambda: ([], [])
    )
    """Per launch."""
    num_launches: int = 0
    unsettled: int = 0
    """Arms whose warm-up did not settle."""
    _rounds: list[Round] = field(default_factory=list)

    def measure(self, look: Look) -> list[Pair]:
        """Pairs of one look, spoiled ones included; ends early where too many are."""
        pairs: list[Pair] = []
        spare = int(EXTRA_PAIRS * self.settings.rounds)
        launches = min(self.settings.launches, self.settings.rounds)
        for launch, wanted in enumerate(_shares(self.settings.rounds, launches)):
            with self._launched() as arms:
                valid = 0
                while valid < wanted and _num_spoiled(pairs) <= spare:
                    self.progress.update(
                        f"{look.value} look", len(pairs) - _num_spoiled(pairs), self.settings.rounds
                    )
                    pairs.append(self._pair(arms, look, launch, len(pairs)))
                    if pairs[-1].rejected is None:
                        valid += 1
                    else:
                        self.progress.note(f"a pair was spoiled: {pairs[-1].rejected}")
                        self.pause(PAUSE_S)
                self._count(arms)
            if _num_spoiled(pairs) > spare:
                break
        self.progress.update(
            f"{look.value} look", len(pairs) - _num_spoiled(pairs), self.settings.rounds
        )
        return pairs

    @contextmanager
    def _launched(self) -> Iterator[tuple[ArmProcess, ArmProcess]]:
        """Both arms loaded and warm; which of them is started first changes with each launch."""
        order = (BASELINE, CANDIDATE) if self.num_launches % 2 == 0 else (CANDIDATE, BASELINE)
        with ExitStack() as stack:
            arms = {side: stack.enter_context(ArmProcess(self.plans[side])) for side in order}
            descriptions = {}
            for side in order:  # one after the other: each sees the memory that is really left
                name = "baseline" if side == BASELINE else "candidate"
                self.progress.note(f"loading the {name}, {self.plans[side].label}")
                descriptions[side] = arms[side].open()
            self._learn([descriptions[BASELINE], descriptions[CANDIDATE]])
            yield arms[BASELINE], arms[CANDIDATE]

    def _learn(self, descriptions: list[ArmDescription]) -> None:
        self.num_launches += 1
        self.unsettled += sum(not one.settled for one in descriptions)
        if not self.descriptions:
            self.descriptions = descriptions
            if self.before_first is not None:
                self.before_first(descriptions[CANDIDATE])
        for plan, known, new in zip(self.plans, self.descriptions, descriptions, strict=True):
            if known.output_sha256 != new.output_sha256:
                raise MeasurementFailedError(
                    f"{plan.label}: two launches of the same greedy workload gave different tokens"
                    f"{how_they_differ(known, new)}",
                    remedy="Check the machine's memory and the kernels before trusting a figure",
                )

    def _pair(
        self, arms: tuple[ArmProcess, ArmProcess], look: Look, launch: int, index: int
    ) -> Pair:
        candidate_first = index % 4 in (1, 2)  # ABBA
        turns: dict[int, Turn] = {}
        for side in (CANDIDATE, BASELINE) if candidate_first else (BASELINE, CANDIDATE):
            turns[side] = arms[side].turn(self.settings.seconds_per_turn)
        rounds = [turns[side].rounds for side in (BASELINE, CANDIDATE)]
        self._rounds += [*rounds[BASELINE], *rounds[CANDIDATE]]
        values = [self._values(plan, own) for plan, own in zip(self.plans, rounds, strict=True)]
        return Pair(
            look=look,
            launch=launch,
            candidate_first=candidate_first,
            baseline=values[BASELINE],
            candidate=values[CANDIDATE],
            rejected=why_spoiled(rounds, usual_canary_hz(self._rounds)),
        )

    def _values(self, plan: ArmPlan, rounds: Sequence[Round]) -> dict[str, float]:
        """Median over the rounds of a turn."""
        found: dict[str, list[float]] = defaultdict(list)
        for one in rounds:
            for name, value in round_values(one).items():
                found[name].append(value)
        values = {name: median(found[name]) for name in self.metrics if found[name]}
        missing = [name for name in self.metrics if values.get(name, 0.0) <= 0]
        if missing:
            raise MeasurementFailedError(
                f"{plan.label}: its workload has no {', '.join(missing)}",
                remedy="Name metrics that the workload has in gate.metrics",
            )
        return values

    def _count(self, arms: Sequence[ArmProcess]) -> None:
        for arm, counters in zip(arms, self.counters, strict=True):
            counters.append(arm.count(ops=not counters).values)


def _num_spoiled(pairs: Sequence[Pair]) -> int:
    return sum(pair.rejected is not None for pair in pairs)


def _shares(total: int, parts: int) -> list[int]:
    """12 over 2: [6, 6]; 7 over 2: [4, 3]."""
    return [total // parts + (index < total % parts) for index in range(parts)]
