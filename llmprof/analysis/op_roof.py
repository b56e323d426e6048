"""The two links of one op: how long its bytes and its FLOPs take at the ceilings.

    roof = alpha x ops + max(bytes / BW_read, FLOPs / P)

The maximum is taken per op, since ops run one after the other; alpha is added per group, where
the number of dispatched ops is known (`step_split`). Williams, Waterman and Patterson, "Roofline",
CACM 52(4), 2009, applied to single kernels.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from llmprof.analysis.rates import Rates
from llmprof.schema.cost import OpCost
from llmprof.schema.environment import Environment
from llmprof.schema.ledger import Part, Side


@dataclass(frozen=True, slots=True)
class OpRoof:
    """Both links of one kind of op, all its calls together."""

    memory_s: float
    compute_s: float
    bytes_by_part: dict[Part, float]
    """What `memory_s` carries, split by kind."""

    @property
    def side(self) -> Side:
        return Side.COMPUTE if self.compute_s > self.memory_s else Side.MEMORY

    @property
    def link_s(self) -> float:
        return max(self.memory_s, self.compute_s)

    def link_by_part(self) -> dict[Part, float]:
        """`link_s` as parts of the ledger: the bytes of a memory-side op, or its arithmetic."""
        if self.side == Side.COMPUTE:
            return {Part.COMPUTE: self.compute_s}
        total = sum(self.bytes_by_part.values())
        if not total:
            return {}
        return {part: self.memory_s * size / total for part, size in self.bytes_by_part.items()}


def op_roof(op: OpCost, rates: Rates, cache_bytes: int) -> OpRoof:
    """Links of `op`; its activations count where one call's do not fit in the last-level cache."""
    traffic = op.traffic
    spilled = traffic.activations if traffic.activations / op.calls > cache_bytes else 0.0
    by_part = {
        Part.MEMORY_WEIGHTS: traffic.weights,
        Part.MEMORY_KV: traffic.kv_read + traffic.kv_write,
        Part.MEMORY_OTHER: traffic.scores + traffic.logits + traffic.copies + spilled,
    }
    return OpRoof(
        memory_s=sum(by_part.values()) / rates.read_bytes_per_s,
        compute_s=op.flops / rates.flops_per_s(op.compute_dtype),
        bytes_by_part=by_part,
    )


def link_time_s(ops: Iterable[OpCost], rates: Rates, cache_bytes: int) -> float:
    """The least time that `ops` take one after the other, without any fixed cost."""
    return sum(op_roof(op, rates, cache_bytes).link_s for op in ops)


def last_level_cache_bytes(environment: Environment) -> int:
    """Cache in front of memory that the run's threads can fill; 0 where it is not known."""
    if environment.gpu is not None:
        return environment.gpu.l2_bytes or 0
    caches = environment.cpu.caches
    if not caches:
        return 0
    last = max(caches, key=lambda cache: cache.level)
    return last.size_bytes * -(-environment.threads // last.shared_by)
