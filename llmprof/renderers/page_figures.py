"""The figures of a run's page: each a drawing, its caption, and the same in tables."""

from typing import NamedTuple

from llmprof import units
from llmprof.renderers.cache_figure import cache_figure, over_time
from llmprof.renderers.ceilings_tables import rounds_table
from llmprof.renderers.conditions import conditions, conditions_table
from llmprof.renderers.conditions_figure import conditions_figure, drawn_panels
from llmprof.renderers.inline_svg import inline_svg
from llmprof.renderers.ledger_figure import ledger_figure
from llmprof.renderers.requests_figure import (
    MOST_SHOWN,
    request_key,
    request_words,
    requests_figure,
)
from llmprof.renderers.response_figure import response_figure, starts_with_a_wait
from llmprof.renderers.roofline_figure import HOW_TO_READ, roofline_figure
from llmprof.renderers.rounds_figure import rounds_figure
from llmprof.renderers.steps_figure import steps_figure
from llmprof.renderers.tables import Table, parts_table, points_table
from llmprof.renderers.timeline_tables import (
    cache_table,
    requests_table,
    response_table,
    steps_table,
)
from llmprof.renderers.wording import (
    PART_MEANINGS,
    hidden_key,
    one_line,
    part_key,
    point_key,
)
from llmprof.schema.ledger import Ledger
from llmprof.schema.report import Report, RooflinePoint

_IN_THE_TABLE = "The table below holds the same figures."


class Figure(NamedTuple):
    svg: str
    """Safe to put into HTML."""
    caption: str
    tables: tuple[Table, ...]


def with_rows(*tables: Table) -> tuple[Table, ...]:
    return tuple(table for table in tables if table.rows)


def roofline(report: Report) -> Figure:
    described = "; ".join(map(_spoken, report.points)) or "no points"
    svg = inline_svg(
        roofline_figure(report, "svg", provenance=False),
        name="roofline",
        title="Roofline: FLOP/s over FLOP/byte, both logarithmic",
        description=f"{described}.",
        tooltips={point_key(point): _spoken(point) for point in report.points},
    )
    caption = (
        "Measured ceilings (solid: read bandwidth and matmul, their interval as a band; thin: the "
        "skinny matmul of a decode step; dashed: the datasheet, where it is known) and where each "
        f"phase stands below them. {HOW_TO_READ}"
    )
    return Figure(svg, caption, with_rows(points_table(report)))


def _spoken(point: RooflinePoint) -> str:
    return (
        f"{one_line(point.label)}: {units.significant(point.intensity_flops_per_byte)} FLOP/byte, "
        f"{units.flops_per_s(point.achieved_flops_per_s.point)}, "
        f"{units.percent(point.roof_fraction.point)} of its roof"
    )


def ledger(report: Report) -> Figure:
    svg = inline_svg(
        ledger_figure(report, "svg"),
        name="ledger",
        title="Ledger: the parts of one step's time, by phase",
        description="The tables below hold the same figures.",
        tooltips={key: text for one in report.ledgers for key, text in _spoken_parts(one).items()},
    )
    caption = (
        "Where the time of one step goes; hatched below each bar: work that costs nothing now."
    )
    return Figure(svg, caption, tuple(parts_table(one) for one in report.ledgers))


def _spoken_parts(one: Ledger) -> dict[str, str]:
    phase = one.phase.value
    parts = {
        part_key(one, part): (
            f"{part.part.label}: {units.seconds(part.time_s.point)}, "
            f"{units.percent(part.share)} of a {phase} step. {PART_MEANINGS[part.part].capitalize()}."
        )
        for part in one.parts
    }
    hidden = {
        hidden_key(one, term): (
            f"Hidden: {one_line(term.name)}, {units.seconds(term.time_s)}, costs nothing now since "
            f"it runs under {one_line(term.under)}."
        )
        for term in one.hidden
    }
    return parts | hidden


def rounds(report: Report) -> Figure:
    svg = inline_svg(
        rounds_figure(report, "svg"),
        name="rounds",
        title="Ceilings and steps over the rounds, each relative to its median",
        description=_IN_THE_TABLE,
    )
    caption = "Whether the machine stood still: a step that moves with its ceiling is the machine's doing."
    return Figure(svg, caption, with_rows(rounds_table(report)))


def machine(report: Report) -> Figure:
    """Without a drawing where no counter could be read: the table says why."""
    found = conditions(report.run)
    svg = (
        inline_svg(
            conditions_figure(found, "svg"),
            name="machine",
            title="Clock, power and activity of the machine over the clean rounds",
            description=_IN_THE_TABLE,
        )
        if drawn_panels(found)
        else ""
    )
    caption = (
        "What the machine did while the steps were timed. A step that slows down with the clock, or "
        "when others want its cores, is no property of the model. From zero: calm looks calm."
    )
    return Figure(svg, caption, (conditions_table(report.run),))


def response(report: Report) -> Figure | None:
    """None where there is no course of one response: requests that share steps, or no round."""
    timeline = report.timeline
    if timeline is None or not timeline.response:
        return None
    svg = inline_svg(
        response_figure(timeline, "svg"),
        name="response",
        title="One response: when each output token is there, and how long it took",
        description=_IN_THE_TABLE,
    )
    begins = (
        "A response starts with a wait, since the whole prompt is computed first; then each token "
        "takes one decode step"
        if starts_with_a_wait(timeline)
        else "The cache was filled beforehand: each token takes one decode step"
    )
    caption = (
        f"{begins}, whose KV cache is one token longer than the one before. Medians over rounds; the "
        "band is their interval."
    )
    return Figure(svg, caption, with_rows(response_table(timeline)))


def requests(report: Report) -> Figure | None:
    """None for work of a fixed shape."""
    timeline = report.timeline
    if timeline is None or not timeline.requests:
        return None
    svg = inline_svg(
        requests_figure(timeline, "svg"),
        name="requests",
        title="The requests of one round over time",
        description=_IN_THE_TABLE,
        tooltips={request_key(one): request_words(one) for one in timeline.requests},
    )
    left_out = len(timeline.requests) - MOST_SHOWN
    more = f" The first {MOST_SHOWN} of {len(timeline.requests)}." if left_out > 0 else ""
    caption = (
        f"Round {timeline.round_index}, the one of median length: hatched while a request waits for "
        f"a place, then its prompt until the first token, then its output.{more}"
    )
    return Figure(svg, caption, with_rows(requests_table(timeline)))


def cache(report: Report) -> Figure | None:
    """None without a cache."""
    timeline = report.timeline
    if timeline is None or not timeline.cache:
        return None
    svg = inline_svg(
        cache_figure(timeline, "svg"),
        name="cache",
        title="KV cache over one round: bytes reserved, and bytes that hold tokens",
        description=_IN_THE_TABLE,
    )
    per_token = report.run.engine.kv_bytes_per_token
    held = f"{units.byte_count(report.run.engine.weight_bytes)} of weights are held beside it. "
    each = f"A token of a sequence takes {units.byte_count(per_token)}. " if per_token else ""
    how = "over the round" if over_time(timeline) else "as the context grows"
    caption = f"What the KV cache holds {how}. {each}{held}Between the lines: reserved and empty."
    return Figure(svg, caption, with_rows(cache_table(timeline)))


def steps(report: Report) -> Figure | None:
    """None where no step counts."""
    timeline = report.timeline
    if timeline is None or not timeline.steps:
        return None
    svg = inline_svg(
        steps_figure(timeline, "svg"),
        name="steps",
        title="The share of the steps of each phase that took at most so long",
        description=_IN_THE_TABLE,
    )
    caption = (
        "A steep curve is a steady step; a long tail to the right are steps that something held up. "
        "The axis does not start at zero."
    )
    return Figure(svg, caption, with_rows(steps_table(timeline)))
