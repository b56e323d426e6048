"""How a metric's value is written for people."""

from llmprof import units
from llmprof.renderers.estimates import Formatter
from llmprof.schema.measurement import Estimate
from llmprof.schema.metric import Metric, Unit

_FORMATTERS: dict[Unit, Formatter] = {
    Unit.SECONDS: units.seconds,
    Unit.TOKENS_PER_S: lambda value: f"{units.significant(value)} tok/s",
    Unit.FRACTION: units.percent,
    Unit.BYTES: units.byte_count,
    Unit.COUNT: units.count,
}
NOTHING = "n/a"


def formatter(metric: Metric) -> Formatter:
    return _FORMATTERS[metric.unit]


def value_text(metric: Metric, value: float | None) -> str:
    return NOTHING if value is None else formatter(metric)(value)


def change_text(ratio: Estimate | None) -> str:
    """A ratio as a change with its interval: "+6.1 % [+5.2, +7.0]"."""
    if ratio is None:
        return NOTHING
    point = units.signed_percent(ratio.point - 1)
    if ratio.num_samples == 1:
        return point
    low, high = (
        units.signed_percent(end - 1).removesuffix(" %") for end in (ratio.low, ratio.high)
    )
    return f"{point} [{low}, {high}]"
