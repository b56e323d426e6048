"""The two links of one op: how long its bytes and its FLOPs take at the ceilings.

    roof = alpha x ops + max(bytes / BW_read, FLOPs / P)

An op that exchanges bytes with other devices has one link, that between them (`costs.collectives`).

The maximum is taken per op, since ops run one after the other; alpha is added per group, where
the number of dispatched ops is known (`step_split`). Williams, Waterman and Patterson, "Roofline",
CACM 52(4), 2009, applied to single kernels.

Of the bytes, weights and KV always count. KV writes are billed at the read ceiling: the least that
they can take, and of a decode step one token beside a whole context that is read. What one op hands
to the next (activations, scores, logits, copies) counts where one call's does not fit in the
last-level cache; else (and where no cache size is known) a cache may hold it, and it is an
interval from zero to all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmprof.analysis.rates import Rates
from llmprof.costs.collectives import collective_s
from llmprof.schema.ceilings import BandwidthCeiling, MemoryOp
from llmprof.schema.cost import ByteTraffic, OpCost
from llmprof.schema.environment import Environment
from llmprof.schema.ledger import Part, Side

_FAR_LEVELS = ("DRAM", "HBM")


@dataclass(frozen=True, slots=True)
class OpRoof:
    """Both links of one kind of op, all its calls together."""

    memory_s: float
    compute_s: float
    bytes_by_part: dict[Part, float]
    """What `memory_s` carries, split by kind."""
    cached_bytes: float
    """Traffic that a cache may serve and that no link carries."""
    exchange_s: float | None = None
    """Of a collective, at its own ceiling, fixed cost included; 0 where that was not measured."""

    @property
    def side(self) -> Side:
        if self.exchange_s is not None:
            return Side.COMMUNICATION
        return Side.COMPUTE if self.compute_s > self.memory_s else Side.MEMORY

    @property
    def link_s(self) -> float:
        return max(self.memory_s, self.compute_s) if self.exchange_s is None else self.exchange_s

    @property
    def roof_bytes(self) -> float:
        return sum(self.bytes_by_part.values())

    def link_by_part(self) -> dict[Part, float]:
        """`link_s` as parts of the ledger: the bytes of a memory-side op, or its arithmetic."""
        if self.exchange_s is not None:
            return {Part.COMMUNICATION: self.exchange_s}
        if self.side == Side.COMPUTE:
            return {Part.COMPUTE: self.compute_s}
        total = self.roof_bytes
        if not total:
            return {}
        return {part: self.memory_s * size / total for part, size in self.bytes_by_part.items()}


def op_roof(op: OpCost, rates: Rates, cache_bytes: int | None) -> OpRoof:
    by_part = _bytes_by_part(op, cache_bytes)
    roof_bytes = sum(by_part.values())
    return OpRoof(
        memory_s=roof_bytes / rates.read_bytes_per_s,
        compute_s=op.flops / rates.flops_per_s(op.compute_dtype),
        bytes_by_part=by_part,
        cached_bytes=op.traffic.total - roof_bytes,
        exchange_s=_exchange_s(op, rates) if op.exchanged_bytes else None,
    )


def _exchange_s(op: OpCost, rates: Rates) -> float:
    ceiling = rates.collectives.get(op.name)
    return 0.0 if ceiling is None else collective_s(op, ceiling)


def _bytes_by_part(op: OpCost, cache_bytes: int | None) -> dict[Part, float]:
    handed_on = _handed_on(op.traffic)
    spills = cache_bytes is not None and handed_on / op.calls > cache_bytes
    return {
        Part.MEMORY_WEIGHTS: op.traffic.weights,
        Part.MEMORY_KV: op.traffic.kv_read + op.traffic.kv_write,
        Part.MEMORY_OTHER: handed_on if spills else 0.0,
    }


def _handed_on(traffic: ByteTraffic) -> float:
    """What one op writes and the next one reads."""
    working = traffic.activations + traffic.scores + traffic.logits
    return working + traffic.copies + traffic.padding


def roof_bytes(ops: Iterable[OpCost], cache_bytes: int | None) -> float:
    """Bytes of `ops` that count toward the roof."""
    return sum(sum(_bytes_by_part(op, cache_bytes).values()) for op in ops)


def link_time_s(ops: Iterable[OpCost], rates: Rates, cache_bytes: int | None) -> float:
    """The least time that `ops` take one after the other, without any fixed cost."""
    return sum(op_roof(op, rates, cache_bytes).link_s for op in ops)


def last_level_cache_bytes(
    environment: Environment, bandwidth: Sequence[BandwidthCeiling]
) -> int | None:
    """Cache in front of memory that the run's threads can fill; None where it is not known.

    As the system reports it, unless reading showed less: a virtual machine may be told of a whole
    socket's cache that others fill too. No buffer that was read at memory's own speed was in cache.
    """
    reported = _reported_cache_bytes(environment)
    if not reported:
        return None
    far = [
        one.buffer_bytes
        for one in bandwidth
        if one.op == MemoryOp.READ and one.level in _FAR_LEVELS
    ]
    return min([reported, *far])


def _reported_cache_bytes(environment: Environment) -> int:
    if environment.gpu is not None:
        return environment.gpu.l2_bytes or 0
    caches = environment.cpu.caches
    if not caches:
        return 0
    last = max(caches, key=lambda cache: cache.level)
    return last.size_bytes * -(-environment.threads // last.shared_by)
