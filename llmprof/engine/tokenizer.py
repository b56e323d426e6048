"""Text to token ids and back: raw, without a chat template."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import tokenizers

from llmprof.errors import InputError, LlmprofError


@dataclass(frozen=True, slots=True)
class Tokenizer:
    backend: tokenizers.Tokenizer
    bos_id: int | None
    eos_ids: tuple[int, ...]
    add_bos: bool
    """Whether the model's own metadata asks for a leading BOS token."""
    where: str
    """The file that it was read from, for messages."""

    def encode(self, text: str) -> list[int]:
        """Ids of raw text. Special tokens that are spelled out in it become their own ids.

        Raises:
            InputError: a text that is no Unicode, or a tokenizer that contradicts itself.
        """
        with library_errors_explained(f"{self.where} cannot read this text"):
            ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        if self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The inverse; special tokens are spelled out.

        Raises:
            InputError: a tokenizer that contradicts itself.
        """
        with library_errors_explained(f"{self.where} cannot spell these tokens"):
            return str(self.backend.decode(list(ids), skip_special_tokens=False))


@contextmanager
def library_errors_explained(problem: str) -> Iterator[None]:
    """Name the file behind what the tokenizers library raises.

    It raises plain Exceptions, and panics of its Rust code, which are BaseExceptions.

    Raises:
        InputError: with the library's own reason.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, LlmprofError):
        raise
    except BaseException as error:
        raise InputError(f"{problem}: {error}") from error
