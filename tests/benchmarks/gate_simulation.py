"""The gate's rule on noise of known kinds: false alarms, and slowdowns found.

Run from the root of the checkout:

    python -m tests.benchmarks.gate_simulation

For each kind of noise 200 gates in which nothing changed, and 200 in which decode became slower by
twice the tolerance. Takes under a minute and needs no device.
"""

import sys
from collections import Counter

import numpy as np

from llmprof.schema.gate_result import GateVerdict
from tests.gate_noise import KINDS, Noise, simulate_gate

GATES = 200
TOLERANCE = 0.05
REQUIRED = tuple(
    name for name in KINDS if name not in ("same, candidate only", "bimodal processes")
)
"""The other two are harsher than what the gate promises, and shown beside it."""


def main() -> int:
    print(f"{GATES} gates per line, tolerance {TOLERANCE:.0%}, two metrics")
    print(f"{'':22}{'nothing changed':^34}{f'decode {2 * TOLERANCE:.0%} slower':^34}")
    heads = "".join(f"{head:>8}" for head in ("FAIL", "PASS", "incon.", "pairs"))
    print(f"{'noise':22}{heads}  {heads}")
    fine = True
    for index, (name, noise) in enumerate(KINDS.items()):
        same, same_pairs = _gates(index, noise, slowdown=0.0)
        slow, slow_pairs = _gates(100 + index, noise, slowdown=2 * TOLERANCE)
        print(f"{name:22}{_row(same, same_pairs)}  {_row(slow, slow_pairs)}")
        if name in REQUIRED:
            fine &= same[GateVerdict.FAIL] <= 1 and slow[GateVerdict.FAIL] >= 0.9 * GATES
    print("at most 1 false FAIL and at least 90 % found:", "yes" if fine else "NO")
    return 0 if fine else 1


def _gates(seed: int, noise: Noise, *, slowdown: float) -> tuple[Counter[GateVerdict], float]:
    rng = np.random.default_rng(seed)
    outcomes = [
        simulate_gate(rng, noise, slowdown=slowdown, tolerance=TOLERANCE) for _ in range(GATES)
    ]
    pairs = sum(outcome.num_pairs for outcome in outcomes) / GATES
    return Counter(outcome.verdict for outcome in outcomes), pairs


def _row(verdicts: Counter[GateVerdict], pairs: float) -> str:
    order = (GateVerdict.FAIL, GateVerdict.PASS, GateVerdict.INCONCLUSIVE)
    return "".join(f"{verdicts[one]:8d}" for one in order) + f"{pairs:8.1f}"


if __name__ == "__main__":
    sys.exit(main())
