from collections.abc import Callable, Sequence

import numpy as np
import pytest

from llmprof.analysis.gate_looks import (
    MIN_PAIRS,
    TimedRule,
    TimedVerdict,
    judge_pairs,
    least_pairs,
)
from llmprof.analysis.metrics import TPOT, TTFT, metric_named
from llmprof.schema.cost import Phase
from llmprof.schema.gate_result import GateVerdict, Look, Pair
from tests.gate_noise import KINDS, bimodal_process, clean, simulate_gate

RULE = TimedRule(metric_named(TPOT), 0.05)
PAIRS = 12


def pairs_of(look: Look, changes: Sequence[float], *, spoiled: int = 0) -> list[Pair]:
    """Pairs with these relative changes over two launches, the first `spoiled` of them rejected."""
    half = len(changes) // 2
    return [
        Pair(
            look=look,
            launch=int(index >= half),
            candidate_first=False,
            baseline={TPOT: 0.01},
            candidate={TPOT: 0.01 * (1 + change)},
            rejected="the machine" if index < spoiled else None,
        )
        for index, change in enumerate(changes)
    ]


def judged(by_look: dict[Look, list[Pair]]) -> tuple[TimedVerdict, list[Look]]:
    """The verdict where each look gives these pairs, and the looks that were taken."""
    taken: list[Look] = []

    def measure(look: Look) -> list[Pair]:
        taken.append(look)
        return by_look[look]

    verdicts, _ = judge_pairs([RULE], PAIRS, measure)
    return verdicts[TPOT], taken


def around(change: float, spread: float = 0.01) -> list[float]:
    return list(change + spread * np.linspace(-1, 1, PAIRS)[np.argsort(np.arange(PAIRS) % 2)])


def test_no_change_passes_at_the_first_look() -> None:
    verdict, taken = judged({Look.FIRST: pairs_of(Look.FIRST, around(0.0))})
    assert (verdict.verdict, taken) == (GateVerdict.PASS, [Look.FIRST])


def test_a_regression_fails_only_after_new_processes_agree() -> None:
    verdict, taken = judged({look: pairs_of(look, around(0.1)) for look in Look})
    assert (verdict.verdict, taken) == (GateVerdict.FAIL, [Look.FIRST, Look.CONFIRM])
    assert "worse in all 4 launches" in verdict.reason


def test_what_does_not_recur_is_inconclusive() -> None:
    looks = {
        Look.FIRST: pairs_of(Look.FIRST, around(0.1)),
        Look.CONFIRM: pairs_of(Look.CONFIRM, around(0.0)),
    }
    verdict, _ = judged(looks)
    assert verdict.verdict is GateVerdict.INCONCLUSIVE
    assert "not so in new processes" in verdict.reason


def test_launches_that_disagree_in_sign_are_no_regression() -> None:
    """Eleven pairs of twelve far worse, and a launch whose median is better."""
    uneven = [-0.01] * 4 + [0.3] * 2 + [0.3] * 6
    looks = {
        Look.FIRST: pairs_of(Look.FIRST, around(0.1)),
        Look.CONFIRM: pairs_of(Look.CONFIRM, uneven),
    }
    verdict, _ = judged(looks)
    assert verdict.verdict is GateVerdict.INCONCLUSIVE
    assert "worse in 3 of 4 launches only" in verdict.reason


def test_undecided_pairs_are_judged_together_with_as_many_again() -> None:
    looks = {
        Look.FIRST: pairs_of(Look.FIRST, around(0.03, spread=0.08)),
        Look.SECOND: pairs_of(Look.SECOND, around(0.0, spread=0.01)),
    }
    verdict, taken = judged(looks)
    assert (verdict.verdict, taken) == (GateVerdict.PASS, [Look.FIRST, Look.SECOND])


def test_a_shown_change_below_the_tolerance_is_no_failure() -> None:
    verdict, _ = judged({Look.FIRST: pairs_of(Look.FIRST, around(0.02, spread=0.005))})
    assert verdict.verdict is GateVerdict.PASS


def test_better_by_more_than_the_tolerance_is_told() -> None:
    verdict, _ = judged({Look.FIRST: pairs_of(Look.FIRST, around(-0.1))})
    assert (verdict.verdict, verdict.improved) == (GateVerdict.PASS, True)


@pytest.mark.parametrize("look", list(Look))
def test_too_few_valid_pairs_are_unstable(look: Look) -> None:
    change = {Look.FIRST: 0.0, Look.SECOND: 0.03, Look.CONFIRM: 0.1}[look]
    spread = 0.08 if look is Look.SECOND else 0.01
    looks = {one: pairs_of(one, around(change, spread)) for one in Look}
    looks[look] = pairs_of(look, around(change, spread), spoiled=1)
    verdict, taken = judged(looks)
    assert (verdict.verdict, taken[-1]) == (GateVerdict.UNSTABLE, look)


def test_spoiled_pairs_are_left_out_of_the_judgement() -> None:
    pairs = [*pairs_of(Look.FIRST, [5.0] * 3, spoiled=3), *pairs_of(Look.FIRST, around(0.0))]
    assert judged({Look.FIRST: pairs})[0].verdict is GateVerdict.PASS


@pytest.mark.parametrize("kind", list(KINDS))
def test_nothing_changed_is_no_regression(kind: str) -> None:
    rng = np.random.default_rng(20)
    fails = [simulate_gate(rng, KINDS[kind]).verdict for _ in range(25)].count(GateVerdict.FAIL)
    assert fails <= (1 if KINDS[kind] is bimodal_process else 0)


@pytest.mark.parametrize("kind", ["clean 2 %", "drift 4 %", "10 % contaminated", "bimodal rounds"])
def test_twice_the_tolerance_is_found(kind: str) -> None:
    rng = np.random.default_rng(21)
    found = [simulate_gate(rng, KINDS[kind], slowdown=0.1).verdict for _ in range(25)]
    assert found.count(GateVerdict.FAIL) >= 23


def test_fifty_unchanged_metrics_do_not_fail() -> None:
    """One threshold per metric would trip somewhere in most of these gates."""
    names = [f"metric {index}" for index in range(50)]
    metric = metric_named(TPOT)
    rules = [TimedRule(metric.model_copy(update={"name": name}), 0.01) for name in names]
    rng = np.random.default_rng(6)
    tripped = 0
    for _ in range(4):
        verdicts, pairs = judge_pairs(rules, PAIRS, _of_all(names, rng))
        assert GateVerdict.FAIL not in {one.verdict for one in verdicts.values()}
        first = [pair for pair in pairs if pair.look is Look.FIRST]
        tripped += any(
            np.mean([pair.candidate[name] / pair.baseline[name] for pair in first]) > 1.01
            for name in names
        )
    assert tripped >= 3


def _of_all(names: list[str], rng: np.random.Generator) -> Callable[[Look], list[Pair]]:
    noise = clean(0.02)

    def measure(look: Look) -> list[Pair]:
        values = {name: np.exp(noise(rng, PAIRS)) for name in names}
        return [
            Pair(
                look=look,
                launch=index % 2,
                candidate_first=False,
                baseline={name: float(one[index, 0]) for name, one in values.items()},
                candidate={name: float(one[index, 1]) for name, one in values.items()},
            )
            for index in range(PAIRS)
        ]

    return measure


@pytest.mark.parametrize(("metrics", "pairs"), [(1, 7), (3, 7), (4, 8), (5, 8)])
def test_a_look_has_as_many_pairs_as_a_regression_in_every_metric_needs(
    metrics: int, pairs: int
) -> None:
    """Twice as long in all of them: Holm asks 2.5 % over their number of the smallest p, 2^-n."""
    assert least_pairs(metrics) == pairs
    names = [TTFT, TPOT, *(f"{phase.value}.step_s.p50" for phase in Phase)][:metrics]
    rules = [TimedRule(metric_named(name), 0.05) for name in names]

    def verdicts(num_pairs: int) -> set[GateVerdict]:
        def measure(look: Look) -> list[Pair]:
            return [
                Pair(
                    look=look,
                    launch=index % 2,
                    candidate_first=False,
                    baseline=dict.fromkeys(names, 0.01),
                    candidate=dict.fromkeys(names, 0.02 + 1e-4 * index),
                )
                for index in range(num_pairs)
            ]

        found, _ = judge_pairs(rules, num_pairs, measure)
        return {one.verdict for one in found.values()}

    assert verdicts(pairs) == {GateVerdict.FAIL}
    if pairs > MIN_PAIRS:
        assert verdicts(pairs - 1) == {GateVerdict.INCONCLUSIVE}
