"""What a scheduler asks of a cache: is there room? Not where, and not in what."""

from typing import Protocol

from llmprof.engine.kv_cache.block_tables import BlockTables
from llmprof.engine.sequence import Sequence


class KvSpace(Protocol):
    """Room for the tokens of sequences; a sequence has a seat before it gets any."""

    def fits(self, count: int, num_tokens: int) -> bool:
        """Whether `count` sequences of so many tokens would fit if they had everything."""

    def admits(self, sequence: Sequence, running: int) -> bool:
        """Whether a waiting sequence can start beside so many, with room for all of them to grow."""

    def reserve(self, sequence: Sequence, num_tokens: int) -> bool:
        """Let a sequence hold so many tokens; false, with nothing changed, if there is no room."""

    def release(self, sequence: Sequence) -> None:
        """Take back all of its room."""


class BlockSpace:
    """Blocks on demand: those for what is known at once, one more whenever the last one is full."""

    def __init__(self, tables: BlockTables) -> None:
        self._tables = tables
        grows = tables.rows.shape[1] > 1
        self._headroom = 1 if grows else 0
        """Free blocks per running sequence that a newcomer leaves: else it would be thrown out again
        as soon as the others grow."""

    @property
    def reserved_tokens(self) -> int:
        """Room that sequences hold, filled or not."""
        return self._tables.num_held * self._tables.block_tokens

    def fits(self, count: int, num_tokens: int) -> bool:
        blocks = self._tables.blocks_for(num_tokens)
        return blocks <= self._tables.rows.shape[1] and count * blocks <= self._tables.num_blocks

    def admits(self, sequence: Sequence, running: int) -> bool:
        needed = self._tables.blocks_for(sequence.num_tokens)
        return needed + self._headroom * running <= self._tables.num_free

    def reserve(self, sequence: Sequence, num_tokens: int) -> bool:
        assert sequence.seat is not None, "a sequence needs a seat before it gets blocks"
        return self._tables.reserve(sequence.seat, num_tokens)

    def release(self, sequence: Sequence) -> None:
        assert sequence.seat is not None, "only a sequence with a seat holds blocks"
        self._tables.release(sequence.seat)


class NoSpace:
    """Without a cache there is nothing to run out of."""

    def fits(self, count: int, num_tokens: int) -> bool:
        return True

    def admits(self, sequence: Sequence, running: int) -> bool:
        return True

    def reserve(self, sequence: Sequence, num_tokens: int) -> bool:
        return True

    def release(self, sequence: Sequence) -> None:
        pass
