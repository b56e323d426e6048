"""Text to token ids and back: raw, without a chat template."""

from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers


@dataclass(frozen=True, slots=True)
class Tokenizer:
    backend: tokenizers.Tokenizer
    bos_id: int | None
    eos_ids: tuple[int, ...]
    add_bos: bool
    """Whether the model's own metadata asks for a leading BOS token."""

    def encode(self, text: str) -> list[int]:
        """Ids of raw text. Special tokens that are spelled out in it become their own ids."""
        ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        if self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The inverse; special tokens are spelled out."""
        return str(self.backend.decode(list(ids), skip_special_tokens=False))
