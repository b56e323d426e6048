"""The tables of a report as text: the page and the Markdown show the same cells."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmprof import units
from llmprof.renderers.estimates import confidence, interval, shared_confidence
from llmprof.renderers.wording import (
    PART_MEANINGS,
    TOKEN_NAMES,
    hidden_key,
    one_line,
    part_key,
    point_key,
)
from llmprof.schema.ledger import GroupEntry, Ledger
from llmprof.schema.measurement import Estimate
from llmprof.schema.report import Report, RooflinePoint


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as they are read: the first column is text, the others numbers unless `prose` says so."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    keys: tuple[str, ...] = ()
    """One per row where rows belong to marks of a figure."""
    prose: frozenset[int] = frozenset()
    """Columns after the first that hold text."""


def phases_table(report: Report) -> Table:
    """How long a step takes and how fast tokens go through, with intervals."""
    rows = []
    for phase in report.phases:
        estimates: list[tuple[str, Estimate, str]] = [
            ("step", phase.step_s, "s"),
            (TOKEN_NAMES[phase.phase], phase.new_tokens_per_s, ""),
        ]
        if phase.num_sequences > 1:
            each = phase.new_tokens_per_s_per_sequence
            estimates.append((f"{TOKEN_NAMES[phase.phase]} per sequence", each, ""))
        rows += [
            (phase.phase.value, name, *_estimate_cells(estimate, unit), "measured, clean pass")
            for name, estimate, unit in estimates
        ]
    for name, latency in (
        ("TTFT", report.latency.ttft_s),
        ("TPOT", report.latency.tpot_s),
        ("ITL", report.latency.itl_s),
    ):
        if latency:
            rows.append(("request", name, *_estimate_cells(latency, "s"), "measured, clean pass"))
    return Table(
        caption="Times and rates: median over rounds of the round's median step",
        columns=("phase", "quantity", "median", "interval", "confidence of samples", "source"),
        rows=tuple(rows),
        prose=frozenset({1, 5}),
    )


def _estimate_cells(estimate: Estimate, unit: str) -> tuple[str, str, str]:
    text = units.seconds if unit == "s" else units.significant
    return text(estimate.point), interval(estimate, text), confidence(estimate)


def points_table(report: Report) -> Table:
    """The marks of the roofline in figures; MFU and MBU where the datasheet is known."""
    stated = report.datasheet is not None
    return Table(
        caption=(
            "Points of the roofline: work counted from shapes, time measured "
            f"({shared_confidence(point.roof_fraction for point in report.points)})"
        ),
        columns=(
            "part",
            "FLOP/byte",
            "FLOP/s",
            "bytes/s",
            "attainable",
            "of its roof",
            "interval",
            "of the step",
            *(("MFU", "MBU") if stated else ()),
        ),
        rows=tuple(
            (*_point_row(point), *(_utilization_cells(point) if stated else ()))
            for point in report.points
        ),
        keys=tuple(point_key(point) for point in report.points),
    )


def _point_row(point: RooflinePoint) -> tuple[str, ...]:
    return (
        one_line(point.label),
        f"{units.significant(point.intensity_low_flops_per_byte)} to "
        f"{units.significant(point.intensity_flops_per_byte)}",
        units.flops_per_s(point.achieved_flops_per_s.point),
        units.bytes_per_s(point.achieved_bytes_per_s.point),
        units.flops_per_s(point.attainable_flops_per_s),
        units.percent(point.roof_fraction.point),
        interval(point.roof_fraction, units.percent),
        units.percent(point.time_share),
    )


def _utilization_cells(point: RooflinePoint) -> tuple[str, str]:
    """Of the datasheet's peaks."""
    mfu, mbu = (
        "no peak" if share is None else units.percent(share) for share in (point.mfu, point.mbu)
    )
    return mfu, mbu


def parts_table(ledger: Ledger) -> Table:
    """The ledger in figures; hidden terms stand below the parts, outside the sum."""
    parts = [
        (
            part.part.label,
            units.seconds(part.time_s.point),
            interval(part.time_s, units.seconds),
            units.percent(part.share),
            PART_MEANINGS[part.part],
        )
        for part in ledger.parts
    ]
    hidden = [
        (
            f"hidden: {one_line(term.name)}",
            units.seconds(term.time_s),
            "",
            units.percent(term.time_s / ledger.step_s.point),
            f"costs nothing now: it runs under {one_line(term.under)}",
        )
        for term in ledger.hidden
    ]
    return Table(
        caption=(
            f"{ledger.phase.value}: where {units.seconds(ledger.step_s.point)} go "
            f"(grouped pass scaled by {units.significant(ledger.grouped_scale)}, "
            f"{shared_confidence(part.time_s for part in ledger.parts)})"
        ),
        columns=("part", "time", "interval", "of the step", "what it is"),
        rows=(*parts, *hidden),
        keys=(
            *(part_key(ledger, part) for part in ledger.parts),
            *(hidden_key(ledger, term) for term in ledger.hidden),
        ),
        prose=frozenset({4}),
    )


def groups_table(ledger: Ledger) -> Table:
    """Every op group against its roof, the largest loss first."""
    ordered = sorted(ledger.groups, key=lambda entry: -entry.loss_s.point)
    return Table(
        caption=(
            f"{ledger.phase.value}: op groups, largest loss first "
            f"({shared_confidence(entry.loss_s for entry in ledger.groups)})"
        ),
        columns=(
            "op group",
            "time",
            "roof",
            "loss",
            "loss interval",
            "of the step",
            "side",
            "ops",
            "bytes",
            "cache may hold",
            "FLOP",
            "FLOP/byte",
        ),
        rows=tuple(_group_row(entry, ledger) for entry in ordered),
        prose=frozenset({6}),
    )


def _group_row(entry: GroupEntry, ledger: Ledger) -> tuple[str, ...]:
    counted = entry.roof_bytes
    return (
        entry.group.label,
        units.seconds(entry.time_s.point),
        units.seconds(entry.roof_s),
        units.seconds(entry.loss_s.point),
        interval(entry.loss_s, units.seconds),
        units.percent(entry.time_s.point / ledger.step_s.point),
        entry.side.value if entry.side else "in cache",
        "not counted" if entry.ops is None else units.count(entry.ops),
        units.decimal_bytes(counted),
        units.decimal_bytes(entry.traffic.total - counted),
        units.flops(entry.flops),
        units.significant(entry.flops / counted) if counted else "no bytes",
    )


def sensitivities_table(ledgers: Sequence[Ledger]) -> Table:
    return Table(
        caption="What one per cent less would give per step, everything else unchanged",
        columns=("phase", "one per cent less", "saves", "of the step"),
        rows=tuple(
            (
                ledger.phase.value,
                one_line(sensitivity.of),
                units.seconds(sensitivity.seconds_per_percent),
                units.percent(sensitivity.seconds_per_percent / ledger.step_s.point),
            )
            for ledger in ledgers
            for sensitivity in ledger.sensitivities
        ),
        prose=frozenset({1}),
    )


def evidence_table(report: Report) -> Table:
    """What each verdict rests on, and what speaks against it."""
    return Table(
        caption="What the verdicts rest on",
        columns=("phase", "checked", "observed", "threshold", "holds"),
        rows=tuple(
            (
                verdict.phase.value,
                one_line(evidence.statement),
                units.significant(evidence.observed),
                units.significant(evidence.threshold),
                "yes" if evidence.supports else "no",
            )
            for verdict in report.verdicts
            for evidence in verdict.evidence
        ),
        prose=frozenset({1, 4}),
    )
