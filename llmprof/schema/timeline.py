"""What happened token by token, request by request and step by step: for figures, not for verdicts."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from llmprof.schema.cost import Phase
from llmprof.schema.measurement import Estimate
from llmprof.schema.record import Record


class TokenGap(Record):
    """How long the output tokens `first` to `last` of a response took, each of them."""

    first: PositiveInt
    """Counted from 1."""
    last: PositiveInt
    """Beyond `first` where a long response is told in fewer figures."""
    gap_s: Estimate
    """From the token before; of token 1 from the start of the request. Over rounds, of each the
    median of these tokens."""


class ServedRequest(Record):
    """One request of the round that is shown; null times where it did not finish."""

    index: NonNegativeInt
    prompt_tokens: PositiveInt
    output_tokens: NonNegativeInt
    """Those that came."""
    preemptions: NonNegativeInt
    outcome: Literal["finished", "rejected", "unfinished"]
    arrival_s: float | None
    """After the start of the round's first step; a little below 0 for those that waited for it."""
    queue_s: NonNegativeFloat | None
    ttft_s: NonNegativeFloat | None
    """From the arrival, queue included."""
    tpot_s: NonNegativeFloat | None
    """Null too for a single output token."""
    end_to_end_s: NonNegativeFloat | None


class CacheMoment(Record):
    """The KV cache during one step of the round that is shown."""

    time_s: NonNegativeFloat
    """End of the step, after the start of the round's first."""
    context_tokens: NonNegativeInt
    """Of the longest sequence of the step, its new tokens included."""
    reserved_bytes: NonNegativeInt
    used_bytes: NonNegativeInt


class StepTimes(Record):
    """The steps of a phase by their length, over all rounds that count."""

    phase: Phase
    num_steps: PositiveInt
    times_s: tuple[PositiveFloat, ...]
    """In ascending order; of many steps evenly spaced ranks, the shortest and the longest included."""

    def at(self, share: float) -> float:
        """The time that `share` of the steps take at most, on a line between neighbouring ranks."""
        rank = share * (len(self.times_s) - 1)
        below = self.times_s[int(rank)]
        above = self.times_s[min(int(rank) + 1, len(self.times_s) - 1)]
        return below + (rank - int(rank)) * (above - below)


class Timeline(Record):
    round_index: NonNegativeInt | None
    """Of the round that `requests` and `cache` show: the one of median length. Null without a round."""
    response: tuple[TokenGap, ...]
    """Empty for a trace of requests, and for steps that mix the phases."""
    requests: tuple[ServedRequest, ...]
    """In the order of the trace; empty for work of a fixed shape."""
    cache: tuple[CacheMoment, ...]
    """Empty without a cache."""
    steps: tuple[StepTimes, ...]
