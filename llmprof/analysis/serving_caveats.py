"""What a reader of a served trace must know: who was turned away, and what was computed twice."""

from collections.abc import Iterator

from llmprof import units
from llmprof.schema.measurement import Caveat
from llmprof.schema.run import RunRecord
from llmprof.schema.serving import ServingMeasurement

NOTABLE_PADDING = 0.10


def serving_caveats(record: RunRecord, serving: ServingMeasurement | None) -> tuple[Caveat, ...]:
    """None for work of a fixed shape."""
    rejected = _rejected(record)
    return (*rejected, *(() if serving is None else _of_served(serving)))


def _rejected(record: RunRecord) -> tuple[Caveat, ...]:
    events = [
        event for one in record.rounds[:1] for event in one.events if event.kind == "rejected"
    ]
    if not events:
        return ()
    total = len(record.rounds[0].requests)
    return (
        Caveat(
            code="rejected",
            message=f"{len(events)} of {total} requests were rejected, request {events[0].request} "
            f"for one: {events[0].message}",
            remedy="Raise kv_cache.memory_bytes, or shorten the requests.",
        ),
    )


def _of_served(serving: ServingMeasurement) -> Iterator[Caveat]:
    if serving.num_preemptions:
        yield Caveat(
            code="preempted",
            message=f"the KV cache ran full: {serving.num_preemptions} times per round a sequence "
            "gave up its blocks and was computed again",
            remedy="Raise kv_cache.memory_bytes, or lower batching.max_sequences.",
        )
    if serving.padding_fraction > NOTABLE_PADDING:
        yield Caveat(
            code="padding",
            message=f"{units.percent(serving.padding_fraction)} of the tokens that were computed are "
            "padding: a static batch is as long as its longest sequence",
            remedy="Set batching.policy=continuous.",
        )
