"""What devices that share out a model exchange, and the least time that it takes.

    time of a collective = alpha + bytes of a device's buffer / bandwidth

Hockney, "The communication challenge for MPP", Parallel Computing 20(3), 1994. Both constants are
measured over the same devices, so that they hold whatever algorithm the library chooses.
"""

from typing import Final

from llmprof.costs.options import CostOptions
from llmprof.schema.ceilings import CollectiveCeiling
from llmprof.schema.cost import ByteTraffic, OpCost, OpGroup

ALL_REDUCE: Final = "communication.all_reduce"
ALL_GATHER: Final = "communication.all_gather"
OP_OF_COLLECTIVE: Final = {"all_reduce": ALL_REDUCE, "all_gather": ALL_GATHER}
"""By the name that its ceiling goes under."""


def all_reduce(calls: int, numbers: int, options: CostOptions) -> OpCost:
    """So many sums over the devices, of `numbers` activations each."""
    return _collective(ALL_REDUCE, calls, numbers, options)


def all_gather(calls: int, numbers: int, options: CostOptions) -> OpCost:
    """As often, every device gets what each of them holds: `numbers` activations."""
    return _collective(ALL_GATHER, calls, numbers, options)


def collective_s(op: OpCost, ceiling: CollectiveCeiling) -> float:
    """Of all calls of a collective."""
    return op.calls * ceiling.alpha_s + op.exchanged_bytes / ceiling.bytes_per_s


def _collective(name: str, calls: int, numbers: int, options: CostOptions) -> OpCost:
    return OpCost(
        name=name,
        group=OpGroup.COMMUNICATION,
        calls=calls,
        compute_dtype=options.compute_dtype,
        flops=0.0,
        flops_dense=0.0,
        flops_causal=0.0,
        traffic=ByteTraffic(),
        exchanged_bytes=calls * numbers * options.activation_bytes,
    )
