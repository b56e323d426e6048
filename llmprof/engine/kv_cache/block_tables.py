"""Which blocks hold which sequence's tokens: bookkeeping on the host, no tensor of the device."""

from typing import Final

import numpy as np
import numpy.typing as npt

from llmprof.engine.block_allocator import BlockAllocator

_UNUSED: Final = 0
"""A valid block number: a kernel that looks beyond a context may load it, never use it."""


class BlockTables:
    """A row of block numbers per seat; a seat is a sequence's place in the batch.

    Contiguous layouts are the case of one block per seat, as long as the longest sequence.
    """

    def __init__(
        self, *, num_seats: int, max_tokens: int, num_blocks: int, block_tokens: int
    ) -> None:
        """For sequences of at most `max_tokens` tokens."""
        width = -(-max_tokens // block_tokens)
        self.block_tokens = block_tokens
        self.rows: npt.NDArray[np.int32] = np.full((num_seats, width), _UNUSED, dtype=np.int32)
        """[seats, width]: the block numbers of each seat, then numbers without meaning."""
        self._allocator = BlockAllocator(num_blocks)
        self._held: list[list[int]] = [[] for _ in range(num_seats)]

    @property
    def num_free(self) -> int:
        return self._allocator.num_free

    @property
    def num_held(self) -> int:
        return self._allocator.num_held

    @property
    def num_blocks(self) -> int:
        return self._allocator.num_blocks

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_tokens)

    def held(self, seat: int) -> tuple[int, ...]:
        """The blocks of a seat, in the order of its tokens."""
        return tuple(self._held[seat])

    def reserve(self, seat: int, num_tokens: int) -> bool:
        """Let a seat hold `num_tokens` tokens; false, with nothing changed, if blocks are short."""
        held = self._held[seat]
        missing = self.blocks_for(num_tokens) - len(held)
        if missing > self._allocator.num_free:
            return False
        for _ in range(missing):
            self.rows[seat, len(held)] = block = self._allocator.allocate()
            held.append(block)
        return True

    def release(self, seat: int) -> None:
        """Give every block of a seat back, the last one first: the next holder gets them in order."""
        held = self._held[seat]
        while held:
            self._allocator.free(held.pop())
