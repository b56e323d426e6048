"""What a user feels: time to the first token, time per token after it, time between tokens."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from llmprof.analysis.phases import step_time_s
from llmprof.analysis.request_times import RequestTimes, request_times
from llmprof.analysis.statistics import median_estimate
from llmprof.schema.cost import Phase
from llmprof.schema.measurement import Estimate, LatencyMeasurement
from llmprof.schema.run import Round


def measure_latency(rounds: Sequence[Round]) -> LatencyMeasurement:
    """TTFT, TPOT and ITL: per round the median over its requests, or that of its common steps.

    Null where the workload has no such thing: no prefill, one output token, or steps that mix
    prefill chunks and decodes without a note of which token is whose.
    """
    if any(one.requests for one in rounds):
        return _of_requests([request_times(one) for one in rounds])
    alike = [one for one in rounds if in_step(one)]
    return LatencyMeasurement(
        ttft_s=_median(ttft_s(one) for one in alike),
        tpot_s=_median(_tpot_s(one) for one in alike),
        itl_s=_median(_itl_s(one) for one in alike),
    )


def _of_requests(rounds: Sequence[Sequence[RequestTimes]]) -> LatencyMeasurement:
    return LatencyMeasurement(
        ttft_s=_median(_middle([one.ttft_s for one in times]) for times in rounds),
        tpot_s=_median(
            _middle([one.tpot_s for one in times if one.tpot_s is not None]) for times in rounds
        ),
        itl_s=_median(_middle([gap for one in times for gap in one.itl_s]) for times in rounds),
    )


def _middle(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def in_step(one: Round) -> bool:
    """Prefill steps first, then decode steps, nothing else."""
    phases = [sample.shape.phase for sample in one.steps]
    decodes = phases.count(Phase.DECODE)
    prefills = len(phases) - decodes
    return phases == [Phase.PREFILL] * prefills + [Phase.DECODE] * decodes


def _ends_s(one: Round) -> list[float]:
    """End of each step since the start of the first.

    Where a device clock exists the host clock runs ahead of it: its steps follow one another.
    """
    if all(sample.device_s is not None for sample in one.steps):
        return [float(end) for end in np.cumsum([step_time_s(sample) for sample in one.steps])]
    start_s = one.steps[0].start_s
    return [sample.start_s + sample.duration_s - start_s for sample in one.steps]


def token_ends_s(one: Round) -> list[float]:
    """When the tokens that follow the first one appeared, led by the moment they count from.

    That is the first token's end after a prefill, and the first step's start without one.
    """
    ends = _ends_s(one)
    prefills = sum(sample.shape.phase == Phase.PREFILL for sample in one.steps)
    return ends[prefills - 1 :] if prefills else [0.0, *ends]


def ttft_s(one: Round) -> float | None:
    prefills = sum(sample.shape.phase == Phase.PREFILL for sample in one.steps)
    return _ends_s(one)[prefills - 1] if prefills else None


def _tpot_s(one: Round) -> float | None:
    """(end-to-end - TTFT) / (output tokens - 1)."""
    ends = token_ends_s(one) if one.steps else []
    return (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else None


def _itl_s(one: Round) -> float | None:
    ends = token_ends_s(one) if one.steps else []
    gaps = [later - earlier for earlier, later in pairwise(ends)]
    return float(np.median(gaps)) if gaps else None


def _median(values: Iterable[float | None]) -> Estimate | None:
    known = [value for value in values if value is not None]
    return median_estimate(known) if known else None
