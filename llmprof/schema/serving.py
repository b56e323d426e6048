"""How a trace of requests was served, over all rounds."""

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from llmprof.schema.measurement import Estimate
from llmprof.schema.record import Record
from llmprof.schema.settings import BatchingPolicy


class Spread(Record):
    """One quantity over the requests (or tokens) of a round: estimates over rounds."""

    p50: Estimate
    p99: Estimate
    """Of fewer than 100 values the largest."""


class CacheWaste(Record):
    """How the KV cache was used while requests were served, over the steps of all rounds."""

    pool_bytes: NonNegativeInt
    """Of the whole store."""
    reserved_peak_bytes: NonNegativeInt
    """Most that sequences held at once."""
    used_peak_bytes: NonNegativeInt
    wasted_fraction: NonNegativeFloat
    """Reserved bytes that hold no token, over reserved bytes; each step weighs as long as it took."""


class ServingMeasurement(Record):
    """What the users of a trace felt together. Only finished requests count in the times."""

    policy: BatchingPolicy
    max_sequences: PositiveInt
    num_requests: NonNegativeInt
    """In one round."""
    num_rejected: NonNegativeInt
    """In one round, the most that occurred."""
    num_preemptions: NonNegativeInt
    """In one round, the most that occurred."""
    round_s: Estimate
    """From the first step's start to the last one's end."""
    requests_per_s: Estimate
    output_tokens_per_s: Estimate
    queue_s: Spread
    """From the arrival to the first step that worked on the request."""
    ttft_s: Spread
    """From the arrival to the end of the step that gave the first token."""
    tpot_s: Spread | None
    """Null where no request has a second output token."""
    itl_s: Spread | None
    end_to_end_s: Spread
    mean_running: NonNegativeFloat
    """Sequences with tokens still to give, over the steps; each step weighs as long as it took."""
    padding_fraction: NonNegativeFloat
    """New tokens that were computed for nothing, over all new tokens."""
    cache: CacheWaste | None
    """Null without a cache."""
