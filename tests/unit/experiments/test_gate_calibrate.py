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
