"""When the tokens of each request appeared, from the steps of its round."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from llmprof.analysis.phases import step_time_s
from llmprof.schema.run import RequestSample, Round


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Of one finished request."""

    queue_s: float
    ttft_s: float
    token_ends_s: tuple[float, ...]
    """After the arrival; the first one is the TTFT."""

    @property
    def end_to_end_s(self) -> float:
        return self.token_ends_s[-1]

    @property
    def tpot_s(self) -> float | None:
        """(end-to-end - TTFT) / (output tokens - 1); None for a single output token."""
        gaps = len(self.token_ends_s) - 1
        return (self.end_to_end_s - self.ttft_s) / gaps if gaps else None

    @property
    def itl_s(self) -> tuple[float, ...]:
        return tuple(later - earlier for earlier, later in pairwise(self.token_ends_s))


def request_times(one: Round) -> tuple[RequestTimes, ...]:
    """Of the finished requests of a round, in the order of the trace.

    A step that serves requests waits for its tokens, so its host time is the one that users feel.
    """
    starts = [sample.start_s for sample in one.steps]
    ends = [sample.start_s + step_time_s(sample) for sample in one.steps]
    return tuple(
        _times(request, starts, ends) for request in one.requests if request.outcome == "finished"
    )


def _times(request: RequestSample, starts: Sequence[float], ends: Sequence[float]) -> RequestTimes:
    queue_s, first = request.queue_s or 0.0, request.first_step or 0
    arrival_s = starts[first] - queue_s
    token_ends = tuple(ends[step] - arrival_s for step in request.token_steps)
    return RequestTimes(queue_s=queue_s, ttft_s=token_ends[0], token_ends_s=token_ends)
