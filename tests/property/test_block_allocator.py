"""Blocks are neither lost nor handed out twice, whatever happens in whatever order."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmprof.engine.block_allocator import BlockAllocator, OutOfBlocksError
from llmprof.engine.kv_cache import BlockTables


@pytest.mark.parametrize("seed", range(3))
def test_ten_thousand_random_operations(seed: int) -> None:
    rng = random.Random(seed)
    num_blocks = rng.randint(1, 40)
    allocator = BlockAllocator(num_blocks)
    held: Counter[int] = Counter()
    for _ in range(10_000):
        match rng.choice(["allocate", "allocate", "share", "free", "free"]):
            case "allocate" if len(held) < num_blocks:
                block = allocator.allocate()
                assert block not in held
                assert 0 <= block < num_blocks
                held[block] = 1
            case "allocate":
                with pytest.raises(OutOfBlocksError):
                    allocator.allocate()
            case "share" if held:
                block = rng.choice(sorted(held))
                allocator.share(block)
                held[block] += 1
            case "free" if held:
                block = rng.choice(sorted(held))
                allocator.free(block)
                held[block] -= 1
                held += Counter()  # drops what nobody holds
        assert allocator.num_held == len(held)
        assert allocator.num_free == num_blocks - len(held)
    assert [allocator.holders(block) for block in range(num_blocks)] == [
        held[block] for block in range(num_blocks)
    ]
    for block, holders in list(held.items()):
        for _ in range(holders):
            allocator.free(block)
    assert sorted(allocator.allocate() for _ in range(num_blocks)) == list(range(num_blocks))


def test_what_nobody_holds_can_neither_be_shared_nor_freed() -> None:
    allocator = BlockAllocator(2)
    block = allocator.allocate()
    allocator.free(block)
    with pytest.raises(ValueError, match="freed twice"):
        allocator.free(block)
    with pytest.raises(ValueError, match="free and cannot be shared"):
        allocator.share(block)


@settings(max_examples=60, deadline=None)
@given(
    num_seats=st.integers(1, 5),
    block_tokens=st.sampled_from([1, 4, 16]),
    num_blocks=st.integers(0, 30),
    moves=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 60)), max_size=60),
)
def test_tables_hold_just_enough_blocks_for_every_seat(
    num_seats: int, block_tokens: int, num_blocks: int, moves: list[tuple[int, int]]
) -> None:
    """A move asks for so many tokens, or with 0 gives everything back."""
    tables = BlockTables(
        num_seats=num_seats, max_tokens=60, num_blocks=num_blocks, block_tokens=block_tokens
    )
    lengths = [0] * num_seats
    for chosen, num_tokens in moves:
        seat = chosen % num_seats
        if num_tokens == 0:
            tables.release(seat)
            lengths[seat] = 0
        else:
            wanted = max(lengths[seat], num_tokens)
            others = sum(-(-lengths[s] // block_tokens) for s in range(num_seats) if s != seat)
            fits = others + -(-wanted // block_tokens) <= num_blocks
            assert tables.reserve(seat, num_tokens) is fits
            lengths[seat] = wanted if fits else lengths[seat]
        held = [block for s in range(num_seats) for block in tables.held(s)]
        assert len(set(held)) == len(held) == tables.num_held
        for s, length in enumerate(lengths):
            blocks = tables.held(s)
            assert len(blocks) == -(-length // block_tokens)
            assert tuple(tables.rows[s, : len(blocks)]) == blocks
