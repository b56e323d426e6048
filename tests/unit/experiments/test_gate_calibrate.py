"""What A/A pairs say about a machine, worked out by hand."""

import math
from statistics import stdev

import pytest

from llmprof.analysis.metrics import TPOT
from llmprof.experiments.gate_calibrate import noise_of
from llmprof.schema.gate_result import Look, Pair

LOGS = (0.01, -0.02, 0.03, 0.0, -0.01, 0.02, 0.0, 0.01, -0.03, 0.02, 0.01, -0.01)
"""Of the twelve processes of three launches a look."""


def test_the_floor_of_a_launch_grows_for_what_twelve_processes_leave_open() -> None:
    """Two launches differ by sqrt 2 of their spread; t with 11 degrees of freedom adds up to 3.077."""
    pairs = [
        Pair(
            look=look,
            launch=launch,
            candidate_first=False,
            baseline={TPOT: math.exp(LOGS[2 * place])},
            candidate={TPOT: math.exp(LOGS[2 * place + 1])},
        )
        for place, (look, launch) in enumerate(
            (look, launch) for look in (Look.FIRST, Look.SECOND) for launch in range(3)
        )
    ]
    noise = noise_of(TPOT, pairs)
    assert noise.num_launches == 12
    assert noise.launch_floor == pytest.approx(
        math.expm1(3.077 * math.sqrt(2) * stdev(LOGS)), rel=1e-3
    )


def aa_pairs(*launches: tuple[float, ...]) -> list[Pair]:
    """Log ratios of the pairs of each launch."""
    return [
        Pair(
            look=(Look.FIRST, Look.SECOND)[number % 2],
            launch=number // 2,
            candidate_first=False,
            baseline={TPOT: 1.0},
            candidate={TPOT: math.exp(log_ratio)},
        )
        for number, own in enumerate(launches)
        for log_ratio in own
    ]


def test_pairs_of_one_launch_are_no_independent_evidence() -> None:
    """Four launches 3 % to either side, all six pairs of each alike: their means spread by 3.46 %.

    With three degrees of freedom the t quantiles are 3.182 and 0.978; as 24 independent pairs the
    floor would be (2.069 + 0.858) x 3.06 % / sqrt 24 = 1.8 %.
    """
    noise = noise_of(TPOT, aa_pairs(*((shift,) * 6 for shift in (0.03, -0.03, 0.03, -0.03))))
    means_spread = 0.03 * math.sqrt(4 / 3)
    assert noise.pair_launch_spread == pytest.approx(means_spread)
    assert noise.num_pair_launches == 4
    assert noise.paired_floor == pytest.approx(
        math.expm1((3.1824 + 0.9785) * means_spread / math.sqrt(4)), rel=1e-3
    )


def test_launches_that_agree_by_chance_leave_open_what_their_pairs_do() -> None:
    """Every launch has the mean 0 and pairs 1 % apart: t with 23 degrees of freedom adds up to 2.927."""
    noise = noise_of(TPOT, aa_pairs(*[(0.01, -0.01) * 3] * 4))
    spread = 0.01 * math.sqrt(24 / 23)
    assert noise.pair_launch_spread == pytest.approx(0.0, abs=1e-12)
    assert noise.paired_floor == pytest.approx(math.expm1(2.927 * spread / math.sqrt(24)), rel=1e-3)
