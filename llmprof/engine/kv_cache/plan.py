"""How large a store a run needs, or may have."""

from dataclasses import dataclass

from llmprof.errors import CapabilityError
from llmprof.schema.settings import KvCacheSettings, KvLayout
from llmprof.units import byte_count


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The store that sequences share. Without a cache it has no block."""

    num_seats: int
    """Sequences in the batch at once, at most."""
    max_tokens: int
    """Of the longest sequence."""
    num_blocks: int
    block_tokens: int
    scratch: bool = False
    """One block more, which no sequence holds: rows that pad a recorded step write there."""

    @property
    def stored_blocks(self) -> int:
        """With the one that no sequence holds."""
        return self.num_blocks + (self.scratch and self.num_blocks > 0)

    @property
    def blocks_per_seat(self) -> int:
        """Of the longest sequence."""
        return -(-self.max_tokens // self.block_tokens)


def plan_pool(
    settings: KvCacheSettings,
    *,
    num_seats: int,
    max_tokens: int,
    bytes_per_token: float,
    scratch: bool = False,
) -> PoolPlan:
    """Room for every seat at its longest, or as much of it as `kv_cache.memory_bytes` holds.

    Args:
        settings: layout, block size and budget.
        num_seats: sequences at once.
        max_tokens: of the longest sequence; a contiguous layout reserves so many for each.
        bytes_per_token: of one sequence, all layers.
        scratch: see `PoolPlan`; the budget holds that block too.

    Raises:
        CapabilityError: the budget does not hold a single block.
    """
    if settings.layout is KvLayout.NONE:
        return PoolPlan(num_seats, max_tokens, num_blocks=0, block_tokens=max_tokens)
    paged = settings.layout is KvLayout.PAGED
    block_tokens = settings.block_tokens if paged else max_tokens
    wanted = num_seats * -(-max_tokens // block_tokens)
    if settings.memory_bytes is None:
        return PoolPlan(num_seats, max_tokens, wanted, block_tokens, scratch)
    block_bytes = block_tokens * bytes_per_token
    affordable = int(settings.memory_bytes // block_bytes) - scratch
    if affordable < 1:
        raise CapabilityError(
            f"kv_cache.memory_bytes is {byte_count(settings.memory_bytes)}, less than one "
            f"{'block' if paged else 'sequence'} of {block_tokens} tokens, {byte_count(block_bytes)}"
            + (", and another one that padded rows write to" if scratch else ""),
            remedy="Raise kv_cache.memory_bytes, or shorten the sequences",
        )
    return PoolPlan(num_seats, max_tokens, min(wanted, affordable), block_tokens, scratch)


def require_whole_batch(plan: PoolPlan, *, bytes_per_token: float) -> None:
    """A batch that starts and ends together needs all of its room at the start.

    Raises:
        CapabilityError: `kv_cache.memory_bytes` does not hold it.
    """
    missing = plan.num_seats * plan.blocks_per_seat - plan.num_blocks
    if plan.num_blocks and missing > 0:
        block_bytes = plan.block_tokens * bytes_per_token
        needed = plan.num_seats * plan.blocks_per_seat * block_bytes
        raise CapabilityError(
            f"a batch of {plan.num_seats} sequences of {plan.max_tokens} tokens reserves "
            f"{byte_count(needed)} of KV cache, and kv_cache.memory_bytes allows "
            f"{byte_count(plan.num_blocks * block_bytes)}",
            remedy="Raise kv_cache.memory_bytes, lower workload.batch, or set "
            "batching.policy=continuous, which starts what fits",
        )
