"""What an SM partition should show, worked out by hand."""

import pytest

from llmprof.schema.cost import Phase
from llmprof.schema.intervention import Intervention, InterventionKind
from scripts.gpu.figures import figures
from scripts.gpu.verdicts import EXPECTED, exponent_of


def partition(phase: Phase, ratio: float) -> Intervention:
    """Half of the multiprocessors; one pair of four was disturbed."""
    return Intervention(
        kind=InterventionKind.FEWER_SMS,
        phase=phase,
        change="half",
        base_step_s=(4e-3, 5e-3, 4e-3, 4e-3),
        changed_step_s=(4e-3 * ratio, 5e-3 * ratio, 4e-2, 4e-3 * ratio),
    )


@pytest.mark.parametrize(("ratio", "exponent"), [(1.0, 0.0), (2.0, 1.0), (2**0.25, 0.25)])
def test_the_exponent_of_half_a_device(ratio: float, exponent: float) -> None:
    assert exponent_of(partition(Phase.DECODE, ratio), 2.0) == pytest.approx(exponent)


def test_what_is_expected_tells_the_two_roofs_apart() -> None:
    """Half of an H200 reads at least 80 % of its bandwidth and multiplies half as fast."""
    decode, prefill = EXPECTED["decode"], EXPECTED["prefill"]
    assert decode[1] < prefill[0]
    assert decode[0] <= exponent_of(partition(Phase.DECODE, 1 / 0.8), 2.0) <= decode[1]
    assert prefill[0] <= exponent_of(partition(Phase.PREFILL, 1.95), 2.0) <= prefill[1]
    assert not decode[0] <= exponent_of(partition(Phase.DECODE, 2.0), 2.0) <= decode[1]


def test_the_summary_shows_it_beside_its_bound() -> None:
    outcome = {"kind": "fewer_sms", "phase": "decode", "survived": True, "words": "as said"}
    exponents = {"decode": {"exponent": 0.9, "expected": [-0.1, 0.4], "met": False}}
    shown = figures({"verdicts": {"outcomes": [outcome], "exponents": exponents}})
    (figure,) = (one for one in shown if one.name.startswith("exponent of decode"))
    assert (figure.status, figure.bound, figure.words) == ("missed", "-0.1 to 0.4", "0.90")
