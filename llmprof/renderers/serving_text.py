"""How a trace was served, in three lines of a terminal."""

from typing import Final

from rich.text import Text

from llmprof import units
from llmprof.renderers.text_layout import wrap_all
from llmprof.schema.serving import CacheWaste, ServingMeasurement, Spread

FEWEST_FOR_P99: Final = 100
"""Requests."""


def serving_lines(serving: ServingMeasurement | None, width: int) -> list[Text]:
    """Nothing for work of a fixed shape."""
    if serving is None:
        return []
    served = serving.num_requests - serving.num_rejected
    title = Text("SERVED ", "bold")
    title.append(f"{served} requests in {units.seconds(serving.round_s.point)}", "bold")
    title.append(
        f" · {serving.policy.value} batching, {units.significant(serving.mean_running)} of at most "
        f"{serving.max_sequences} at once · {units.significant(serving.requests_per_s.point)} "
        f"requests/s · {units.significant(serving.output_tokens_per_s.point)} output tok/s"
    )
    return [Text(), *wrap_all([title, Text(_latency(serving)), Text(_use(serving))], width)]


def _latency(serving: ServingMeasurement) -> str:
    named = {
        "queue": serving.queue_s,
        "TTFT": serving.ttft_s,
        "TPOT": serving.tpot_s,
        "ITL": serving.itl_s,
        "end to end": serving.end_to_end_s,
    }
    parts = [_spread(name, spread) for name, spread in named.items() if spread is not None]
    few = serving.num_requests - serving.num_rejected < FEWEST_FOR_P99
    late = "p99, of fewer than 100 values the largest" if few else "p99"
    return f"{' · '.join(parts)} (median / {late})"


def _spread(name: str, spread: Spread) -> str:
    return f"{name} {units.seconds(spread.p50.point)} / {units.seconds(spread.p99.point)}"


def _use(serving: ServingMeasurement) -> str:
    parts = [f"padding {units.percent(serving.padding_fraction)}"]
    if serving.cache is not None:
        parts.append(_cache(serving.cache))
    parts.append(f"{serving.num_preemptions} preemptions")
    if serving.num_rejected:
        parts.append(f"{serving.num_rejected} rejected")
    return " · ".join(parts)


def _cache(cache: CacheWaste) -> str:
    peak, pool = units.byte_count(cache.reserved_peak_bytes), units.byte_count(cache.pool_bytes)
    return f"KV {peak} of {pool} held at most, {units.percent(cache.wasted_fraction)} of it empty"
