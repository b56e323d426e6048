"""A decode step at stated rates: the least time that they allow, and what its tokens cost."""

from typing import Final

from llmprof.costs.kv_cache import kv_bytes_per_token
from llmprof.costs.roofline import compute_s
from llmprof.costs.step import step_cost
from llmprof.planning.capacity import Capacity, decode_shape
from llmprof.schema.cost import ByteTraffic
from llmprof.schema.plan import DecodeBound, PlannedDecode, PlanRates

_SECONDS_PER_HOUR: Final = 3600.0
_MILLION: Final = 1e6


def decode_forecast(
    capacity: Capacity,
    rates: PlanRates,
    sequences: int,
    tokens: int,
    *,
    price_per_hour: float | None,
) -> PlannedDecode:
    """The step that fills contexts of so many tokens: the longest one, and so the slowest.

    `price_per_hour` is that of one device; all that share out the model are paid for.
    """
    shape = decode_shape(capacity.options, sequences, tokens)
    cost = step_cost(capacity.model, capacity.weights, shape, capacity.options)
    read = _device_bytes(cost.traffic, capacity)
    memory_s = read / rates.read_bytes_per_s
    dtypes = {op.compute_dtype for op in cost.ops if op.flops}
    known = dtypes <= set(rates.flops_per_s)
    arithmetic_s = (
        compute_s(cost, lambda dtype: rates.flops_per_s.get(dtype, 1.0)) if known else 0.0
    )
    step_s = max(memory_s, arithmetic_s / capacity.devices)
    per_s = sequences / step_s
    return PlannedDecode(
        step_s=step_s,
        bound=DecodeBound.MEMORY if step_s == memory_s else DecodeBound.COMPUTE,
        read_bytes=read,
        output_tokens_per_s=per_s,
        output_tokens_per_s_per_sequence=1 / step_s,
        cost_per_million_tokens=(
            None
            if price_per_hour is None
            else price_per_hour * capacity.devices / _SECONDS_PER_HOUR / per_s * _MILLION
        ),
    )


def has_compute_roof(rates: PlanRates, compute_dtype: str) -> bool:
    return compute_dtype in rates.flops_per_s


def _device_bytes(traffic: ByteTraffic, capacity: Capacity) -> float:
    """What one of the devices must move: its part of weights and cache, an even part of the rest."""
    devices = capacity.devices
    if devices == 1:
        return traffic.required
    model, number = capacity.model, capacity.options.kv_bytes_per_number
    weights = capacity.weight_bytes / capacity.weights.stored_bytes
    whole = kv_bytes_per_token(model, number)
    kept = kv_bytes_per_token(model, number, tensor_parallel=devices)
    cache = kept / whole if whole else 1 / devices
    rest = (traffic.scores + traffic.logits + traffic.copies + traffic.padding) / devices
    return traffic.weights * weights + (traffic.kv_read + traffic.kv_write) * cache + rest
