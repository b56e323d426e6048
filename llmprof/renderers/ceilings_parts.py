"""The ceilings beyond those that every run needs, one table per part."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from llmprof import units
from llmprof.schema.ceilings import AttentionCeiling, Ceilings, ComputeCeiling, SkinnyCeiling


@dataclass(frozen=True, slots=True)
class PartTable:
    """Cells as they are read: text, then numbers from `first_number` on, the last one text again."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    first_number: int


def part_tables(ceilings: Ceilings, parts: Collection[str], now: datetime) -> Iterator[PartTable]:
    """Of the parts asked for that were measured, in a fixed order, each with its age."""
    for part, make in _TABLES.items():
        measured_at = ceilings.parts_measured_at.get(part)
        if part in parts and measured_at is not None:
            table = make(ceilings)
            age = units.age((now - measured_at).total_seconds())
            disturbed = ", disturbed by other processes" if part in ceilings.contended_parts else ""
            caption = f"{table.caption}; measured {age} ago{disturbed}"
            yield PartTable(caption, table.columns, table.rows, table.first_number)


def _skinny(ceilings: Ceilings) -> PartTable:
    shape = next(iter(ceilings.skinny), None)
    size = f", {shape.out_features} x {shape.in_features}" if shape else ""
    return PartTable(
        f"skinny matmuls{size}: weights as stored, per second",
        ("format", "level", "rows", *_figures(ceilings), "kernel"),
        tuple(
            (one.format, one.level, str(one.rows), *_rates(one), one.kernel)
            for one in ceilings.skinny
        ),
        first_number=2,
    )


def _attention(ceilings: Ceilings) -> PartTable:
    one = next(iter(ceilings.attention), None)
    shape = f", {one.heads} heads, {one.kv_heads} of KV, {one.head_dim} wide" if one else ""
    return PartTable(
        f"attention of one new token{shape}: keys and values as stored, per second",
        ("KV cache", "kind", "level", "context", *_figures(ceilings), "kernel"),
        tuple(
            (
                f"{one.layout} {one.kv_dtype}",
                one.kind,
                one.level,
                units.count(one.context_tokens),
                *_rates(one),
                one.kernel,
            )
            for one in ceilings.attention
        ),
        first_number=3,
    )


def _figures(ceilings: Ceilings) -> tuple[str, str, str]:
    return ("best" if ceilings.environment.device == "cpu" else "ceiling"), "median", "spread"


def _rates(one: SkinnyCeiling | AttentionCeiling) -> tuple[str, str, str]:
    return (
        units.bytes_per_s(one.bytes_per_s),
        units.bytes_per_s(one.median_bytes_per_s),
        units.percent(one.spread),
    )


def _host(ceilings: Ceilings) -> PartTable:
    return PartTable(
        "host: a decode step of a model that costs nothing else",
        ("execution.mode", "step", "median", "spread", "one layer more", "method"),
        tuple(
            (
                one.mode,
                units.seconds(one.seconds_per_step),
                units.seconds(one.median_s),
                units.percent(one.spread),
                units.seconds(one.seconds_per_layer),
                one.method,
            )
            for one in ceilings.host
        ),
        first_number=1,
    )


def kernel_at_clock(ceiling: ComputeCeiling) -> str:
    """Of a GPU the clock belongs to the figure: a burst and a sustained one differ by it."""
    clock_hz = ceiling.sm_clock_hz
    return ceiling.kernel if clock_hz is None else f"{ceiling.kernel} at {units.si(clock_hz, 'Hz')}"


def _sustained(ceilings: Ceilings) -> PartTable:
    burst = {one.dtype: one.flops_per_s for one in ceilings.compute}
    return PartTable(
        "sustained matmuls: median of the second half of the time",
        ("dtype", "m x n x k", "time", "sustained", "spread", "of the burst", "kernel"),
        tuple(
            (
                one.dtype,
                f"{one.m} x {one.n} x {one.k}",
                units.seconds(one.measured_s) if one.measured_s else "not known",
                units.flops_per_s(one.flops_per_s),
                units.percent(one.spread),
                units.percent(one.flops_per_s / burst[one.dtype])
                if one.dtype in burst
                else "no burst",
                kernel_at_clock(one),
            )
            for one in ceilings.sustained
        ),
        first_number=1,
    )


def _collectives(ceilings: Ceilings) -> PartTable:
    return PartTable(
        "collectives: time = alpha + bytes of a rank / bandwidth",
        ("op", "processes", "alpha", "bandwidth", "worst misfit", "backend"),
        tuple(
            (
                one.op,
                str(one.world_size),
                units.seconds(one.alpha_s),
                units.bytes_per_s(one.bytes_per_s),
                units.percent(one.spread),
                one.backend,
            )
            for one in ceilings.collectives
        ),
        first_number=1,
    )


def _gpm(ceilings: Ceilings) -> PartTable:
    return PartTable(
        "DRAM counter (GPM) under the read kernel, of the theoretical bandwidth"
        if ceilings.gpm
        else "DRAM counter (GPM): this device has none that can be read",
        ("activity", "time", "kernel"),
        tuple(
            (units.percent(one.dram_activity), units.seconds(one.measured_s), one.kernel)
            for one in ceilings.gpm
        ),
        first_number=0,
    )


_TABLES: Final[dict[str, Callable[[Ceilings], PartTable]]] = {
    "skinny": _skinny,
    "attention": _attention,
    "host": _host,
    "sustained": _sustained,
    "collectives": _collectives,
    "gpm": _gpm,
}
