"""Blocks of a paged cache: who holds which, and which are free. Knows nothing of tensors."""


class OutOfBlocksError(Exception):
    """No block is free; the scheduler makes room or waits."""


class BlockAllocator:
    """Hands out the numbers 0 ... num_blocks - 1, each to one holder at a time unless it is shared.

    A block that was freed last is handed out first: its lines may still be in a cache.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._holders = [0] * num_blocks

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_held(self) -> int:
        return self.num_blocks - len(self._free)

    def holders(self, block: int) -> int:
        """How many hold a block; 0 for a free one."""
        return self._holders[block]

    def allocate(self) -> int:
        """A free block, held once.

        Raises:
            OutOfBlocksError: there is none.
        """
        if not self._free:
            raise OutOfBlocksError(f"all {self.num_blocks} blocks are held")
        block = self._free.pop()
        self._holders[block] = 1
        return block

    def share(self, block: int) -> None:
        """One holder more.

        Raises:
            ValueError: nobody holds the block, so there is nothing to share.
        """
        if not self._holders[block]:
            raise ValueError(f"block {block} is free and cannot be shared")
        self._holders[block] += 1

    def free(self, block: int) -> None:
        """One holder less; free for others once there is none.

        Raises:
            ValueError: nobody holds the block.
        """
        if not self._holders[block]:
            raise ValueError(f"block {block} is freed twice")
        self._holders[block] -= 1
        if not self._holders[block]:
            self._free.append(block)
