"""Reports with a course of requests, small and as large as a page has to bear."""

from llmprof.schema.cost import Phase
from llmprof.schema.report import Report
from llmprof.schema.timeline import (
    CacheMoment,
    ServedRequest,
    StepTimes,
    Timeline,
    TokenGap,
)
from tests.unit.renderers.report_factory import a_report, about


def a_request(index: int, queue_s: float = 0.5, preemptions: int = 0) -> ServedRequest:
    """0.4 s of prefill, then 11 tokens every 20 ms."""
    return ServedRequest(
        index=index,
        prompt_tokens=64,
        output_tokens=11,
        preemptions=preemptions,
        outcome="finished",
        arrival_s=0.0,
        queue_s=queue_s,
        ttft_s=queue_s + 0.4,
        tpot_s=0.02,
        end_to_end_s=queue_s + 0.6,
    )


REJECTED = ServedRequest(
    index=2,
    prompt_tokens=4096,
    output_tokens=0,
    preemptions=0,
    outcome="rejected",
    arrival_s=None,
    queue_s=None,
    ttft_s=None,
    tpot_s=None,
    end_to_end_s=None,
)


def moments(count: int) -> tuple[CacheMoment, ...]:
    return tuple(
        CacheMoment(
            time_s=0.01 * (index + 1),
            context_tokens=64 + index,
            reserved_bytes=2**20,
            used_bytes=2**10 * (index + 1),
        )
        for index in range(count)
    )


def served() -> Report:
    timeline = Timeline(
        round_index=1,
        response=(),
        requests=(a_request(0, queue_s=0.0), a_request(1, preemptions=1), REJECTED),
        cache=moments(20),
        steps=(StepTimes(phase=Phase.MIXED, num_steps=1, times_s=(0.4,)),),
    )
    return a_report().model_copy(update={"timeline": timeline})


def largest() -> Report:
    """Every series as long as a timeline may be, and many rounds."""
    times = tuple(0.01 + 1e-5 * index for index in range(500))
    gaps = tuple(
        TokenGap(first=1 + 8 * index, last=8 + 8 * index, gap_s=about(0.02)) for index in range(500)
    )
    timeline = Timeline(
        round_index=1,
        response=gaps,
        requests=tuple(a_request(index) for index in range(2000)),
        cache=moments(500),
        steps=tuple(StepTimes(phase=phase, num_steps=9999, times_s=times) for phase in Phase),
    )
    return a_report(rounds=48).model_copy(update={"timeline": timeline})
