"""The figures of a timeline as tables: a few rows for long series, and what they leave out is said."""

from llmprof import units
from llmprof.renderers.estimates import interval, shared_confidence
from llmprof.renderers.requests_figure import request_key
from llmprof.renderers.tables import Table
from llmprof.schema.serving import ServingMeasurement, Spread
from llmprof.schema.timeline import ServedRequest, StepTimes, Timeline

RESPONSE_ROWS = 12
REQUEST_ROWS = 64


def response_table(timeline: Timeline) -> Table:
    """The first tokens, then others evenly spaced, the last included."""
    gaps = timeline.response
    every = max(-(-len(gaps) // RESPONSE_ROWS), 1)
    shown = {0, 1, len(gaps) - 1, *range(0, len(gaps), every)}
    rows = [gaps[index] for index in sorted(shown) if 0 <= index < len(gaps)]
    return Table(
        caption=(
            f"One response, {len(rows)} of {len(gaps)} points of the figure "
            f"({shared_confidence(gap.gap_s for gap in gaps)})"
        ),
        columns=("output token", "time since the one before", "interval"),
        rows=tuple(
            (
                f"{gap.first:,}" if gap.first == gap.last else f"{gap.first:,} to {gap.last:,}",
                units.seconds(gap.gap_s.point),
                interval(gap.gap_s, units.seconds),
            )
            for gap in rows
        ),
    )


def serving_table(serving: ServingMeasurement | None) -> Table:
    """What users felt, over the requests of all rounds."""
    named = (
        ()
        if serving is None
        else (
            ("queue", serving.queue_s),
            ("TTFT", serving.ttft_s),
            ("TPOT", serving.tpot_s),
            ("ITL", serving.itl_s),
            ("end to end", serving.end_to_end_s),
        )
    )
    known = [(name, spread) for name, spread in named if spread is not None]
    return Table(
        caption=(
            "Latencies over the requests of a round, medians over rounds; of fewer than 100 values the "
            f"largest is the 99th percentile ({shared_confidence(s.p50 for _, s in known)})"
        ),
        columns=("time", "median request", "interval", "99th percentile", "interval"),
        rows=tuple((name, *_spread_cells(spread)) for name, spread in known),
    )


def _spread_cells(spread: Spread) -> tuple[str, str, str, str]:
    return (
        units.seconds(spread.p50.point),
        interval(spread.p50, units.seconds),
        units.seconds(spread.p99.point),
        interval(spread.p99, units.seconds),
    )


def requests_table(timeline: Timeline) -> Table:
    shown = timeline.requests[:REQUEST_ROWS]
    return Table(
        caption=(
            f"{len(shown)} of {len(timeline.requests)} requests in round {timeline.round_index}, "
            "the one of median length"
        ),
        columns=(
            "request",
            "prompt",
            "output",
            "queue",
            "TTFT",
            "TPOT",
            "end to end",
            "preempted",
            "outcome",
        ),
        rows=tuple(map(_request_row, shown)),
        keys=tuple(map(request_key, shown)),
        prose=frozenset({8}),
    )


def _request_row(request: ServedRequest) -> tuple[str, ...]:
    times = (request.queue_s, request.ttft_s, request.tpot_s, request.end_to_end_s)
    return (
        f"{request.index}",
        f"{request.prompt_tokens:,}",
        f"{request.output_tokens:,}",
        *("-" if time_s is None else units.seconds(time_s) for time_s in times),
        f"{request.preemptions} x" if request.preemptions else "-",
        request.outcome,
    )


def cache_table(timeline: Timeline) -> Table:
    """The steps at a quarter, half and all of the round."""
    moments = timeline.cache
    indices = sorted({0, len(moments) // 4, len(moments) // 2, len(moments) - 1} if moments else ())
    return Table(
        caption="KV cache of all sequences in some steps of that round",
        columns=("after", "context", "holds tokens", "reserved", "empty"),
        rows=tuple(
            (
                units.seconds(one.time_s),
                f"{one.context_tokens:,}",
                units.byte_count(one.used_bytes),
                units.byte_count(one.reserved_bytes),
                units.percent(1 - one.used_bytes / one.reserved_bytes)
                if one.reserved_bytes
                else "-",
            )
            for one in (moments[index] for index in indices)
        ),
    )


def steps_table(timeline: Timeline) -> Table:
    return Table(
        caption="Steps by their length, all rounds that count together",
        columns=("phase", "steps", "shortest", "5 %", "median", "95 %", "longest"),
        rows=tuple(_step_row(times) for times in timeline.steps),
    )


def _step_row(times: StepTimes) -> tuple[str, ...]:
    return (
        times.phase.value,
        f"{times.num_steps:,}",
        *(units.seconds(times.at(share)) for share in (0.0, 0.05, 0.5, 0.95, 1.0)),
    )
