"""Simulated gates: the shipped rule over pairs from noise of a known kind."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from llmprof.analysis.gate_looks import TimedRule, judge_pairs
from llmprof.analysis.metrics import TPOT, TTFT, metric_named
from llmprof.schema.gate_result import GateVerdict, Look, Pair

PAIRS, LAUNCHES = 12, 2
Noise: TypeAlias = Callable[[np.random.Generator, int], NDArray[np.float64]]
"""Logarithms of what the machine does to the arms of one launch: [pairs, 2], baseline first."""


def clean(spread: float) -> Noise:
    """Each turn on its own."""

    def noise(rng: np.random.Generator, pairs: int) -> NDArray[np.float64]:
        return rng.normal(0.0, spread, (pairs, 2))

    return noise


def drifting(rng: np.random.Generator, pairs: int) -> NDArray[np.float64]:
    """The machine grows 4 % slower over a launch, turn by turn in ABBA order, and 2 % of noise."""
    turns = np.linspace(0.0, 0.04, 2 * pairs).reshape(pairs, 2)
    swapped = (np.arange(pairs) % 2 == 1)[:, None]
    drift: NDArray[np.float64] = np.where(swapped, turns[:, ::-1], turns)
    drift += rng.normal(0.0, 0.02, (pairs, 2))
    return drift


def contaminated(rng: np.random.Generator, pairs: int) -> NDArray[np.float64]:
    """One turn in ten takes 15 % longer unnoticed, 2 % of noise."""
    return rng.normal(0.0, 0.02, (pairs, 2)) + math.log(1.15) * (rng.random((pairs, 2)) < 0.1)


def contaminated_candidate(rng: np.random.Generator, pairs: int) -> NDArray[np.float64]:
    """The same to the candidate alone: worse than any machine has a reason to be."""
    noise = rng.normal(0.0, 0.02, (pairs, 2))
    noise[:, 1] += math.log(1.15) * (rng.random(pairs) < 0.1)
    return noise


def bimodal(rng: np.random.Generator, pairs: int) -> NDArray[np.float64]:
    """Every turn is in one of two modes that lie 8 % apart, 1 % of noise."""
    return rng.normal(0.0, 0.01, (pairs, 2)) + 0.08 * (rng.random((pairs, 2)) < 0.5)


def bimodal_process(rng: np.random.Generator, pairs: int) -> NDArray[np.float64]:
    """Every process keeps one of two modes that lie 6 % apart (its memory layout), 1 % of noise."""
    return rng.normal(0.0, 0.01, (pairs, 2)) + 0.06 * (rng.random(2) < 0.5)


KINDS: dict[str, Noise] = {
    **{f"clean {percent} %": clean(percent / 100) for percent in range(1, 6)},
    "drift 4 %": drifting,
    "10 % contaminated": contaminated,
    "same, candidate only": contaminated_candidate,
    "bimodal rounds": bimodal,
    "bimodal processes": bimodal_process,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    verdict: GateVerdict
    num_pairs: int


def simulate_gate(
    rng: np.random.Generator, noise: Noise, *, slowdown: float = 0.0, tolerance: float = 0.05
) -> Outcome:
    """One gate over two metrics; `slowdown` is the candidate's, in the first of them alone."""
    rules = [TimedRule(metric_named(name), tolerance) for name in (TPOT, TTFT)]

    def measure(look: Look) -> Sequence[Pair]:
        pairs = []
        for launch in range(LAUNCHES):
            logs = {rule.metric.name: noise(rng, PAIRS // LAUNCHES) for rule in rules}
            logs[TPOT][:, 1] += np.log1p(slowdown)
            pairs += [
                Pair(
                    look=look,
                    launch=launch,
                    candidate_first=bool(index % 2),
                    baseline={name: float(np.exp(one[index, 0])) for name, one in logs.items()},
                    candidate={name: float(np.exp(one[index, 1])) for name, one in logs.items()},
                )
                for index in range(PAIRS // LAUNCHES)
            ]
        return pairs

    verdicts, pairs = judge_pairs(rules, PAIRS, measure)
    found = [one.verdict for one in verdicts.values()]
    for verdict in (GateVerdict.FAIL, GateVerdict.INCONCLUSIVE):
        if verdict in found:
            return Outcome(verdict, len(pairs))
    return Outcome(GateVerdict.PASS, len(pairs))
