from typing import Any

import pytest

from llmprof.engine.kv_cache import PoolPlan, plan_pool, require_whole_batch
from llmprof.errors import CapabilityError
from llmprof.schema.settings import KvCacheSettings

TOKEN_BYTES = 1000.0


def planned(
    num_seats: int = 4, max_tokens: int = 100, *, scratch: bool = False, **kv: Any
) -> PoolPlan:
    settings = KvCacheSettings.model_validate(kv)
    return plan_pool(
        settings,
        num_seats=num_seats,
        max_tokens=max_tokens,
        bytes_per_token=TOKEN_BYTES,
        scratch=scratch,
    )


@pytest.mark.parametrize(
    ("kv", "num_blocks", "block_tokens"),
    [
        ({"layout": "none"}, 0, 100),
        ({"layout": "contiguous"}, 4, 100),
        ({"layout": "contiguous", "memory_bytes": 350_000}, 3, 100),
        ({"layout": "paged"}, 4 * 7, 16),
        ({"layout": "paged", "block_tokens": 64}, 4 * 2, 64),
        ({"layout": "paged", "memory_bytes": 350_000}, 21, 16),
        ({"layout": "paged", "memory_bytes": 10**9}, 4 * 7, 16),
    ],
)
def test_blocks(kv: dict[str, Any], num_blocks: int, block_tokens: int) -> None:
    plan = planned(**kv)
    assert (plan.num_blocks, plan.block_tokens) == (num_blocks, block_tokens)


@pytest.mark.parametrize(("layout", "unit"), [("paged", "block"), ("contiguous", "sequence")])
def test_a_budget_below_one_block_is_refused(layout: str, unit: str) -> None:
    with pytest.raises(CapabilityError, match=f"less than one {unit}") as caught:
        planned(layout=layout, memory_bytes=15_999)
    assert "memory_bytes" in caught.value.line()


def test_a_batch_that_starts_together_needs_all_of_its_room() -> None:
    whole = planned(layout="paged", memory_bytes=28 * 16_000)
    require_whole_batch(whole, bytes_per_token=TOKEN_BYTES)
    with pytest.raises(CapabilityError, match="reserves 438 KiB of KV cache"):
        require_whole_batch(
            planned(layout="paged", memory_bytes=27 * 16_000), bytes_per_token=TOKEN_BYTES
        )
    require_whole_batch(planned(layout="none"), bytes_per_token=0.0)


@pytest.mark.parametrize(("layout", "block"), [("paged", 16_000), ("contiguous", 100_000)])
def test_the_block_that_padding_writes_to_is_in_the_budget(layout: str, block: int) -> None:
    plan = planned(layout=layout, memory_bytes=3 * block, scratch=True)
    assert (plan.num_blocks, plan.stored_blocks) == (2, 3)
    with pytest.raises(CapabilityError, match="padded rows"):
        planned(layout=layout, memory_bytes=2 * block - 1, scratch=True)
    assert planned(layout="none", scratch=True).stored_blocks == 0
    assert planned(layout=layout).stored_blocks == planned(layout=layout).num_blocks
