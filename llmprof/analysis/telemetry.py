"""What the device's own counters say about the rounds: energy per token, clocks held back."""

from collections.abc import Iterable, Sequence
from typing import Final

from llmprof import units
from llmprof.analysis.statistics import median_estimate
from llmprof.analysis.tokens import tokens_by_step
from llmprof.schema.measurement import Caveat, Estimate
from llmprof.schema.run import Round

NOTABLE_SHARE: Final = 0.10
"""Of a round that the clock was held back: below it, ceilings beside the round tell enough."""


def energy_per_token(rounds: Sequence[Round]) -> Estimate | None:
    """Joules of the whole device per token, prompt and output together; None without a counter.

    Idle power is in it, and so is every other process on the device.
    """
    per_token = []
    for one in rounds:
        tokens = sum(tokens_by_step(one))
        if one.telemetry is not None and one.telemetry.energy_j and tokens:
            per_token.append(one.telemetry.energy_j / tokens)
    return median_estimate(per_token) if per_token else None


def held_back_caveats(rounds: Sequence[Round]) -> Iterable[Caveat]:
    """By cause, the rounds in which the clock was held back for more than a tenth of the time."""
    shares: dict[str, list[float]] = {}
    for one in rounds:
        if one.telemetry is not None and one.telemetry.interval_s:
            for cause, held_s in one.telemetry.held_back_s.items():
                shares.setdefault(cause, []).append(held_s / one.telemetry.interval_s)
    for cause, of_cause in shares.items():
        notable = [share for share in of_cause if share > NOTABLE_SHARE]
        if notable:
            yield Caveat(
                code="held-back",
                message=f"{cause} held the clock back in {len(notable)} of {len(of_cause)} rounds, "
                f"for up to {units.percent(max(notable))} of the time (the device's own counter)",
                remedy="Check cooling and the power limit; the ceilings beside each round saw the "
                "same clock",
            )
