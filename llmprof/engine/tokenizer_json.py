"""A tokenizer from tokenizer.json, with what tokenizer_config.json beside it says about BOS."""

from pathlib import Path
from typing import Final

import tokenizers

from llmprof.architectures.json_file import read_json_object
from llmprof.engine.tokenizer import Tokenizer, library_errors_explained
from llmprof.errors import InputError

_CONFIG: Final = "tokenizer_config.json"


def tokenizer_from_json(path: Path, eos_ids: tuple[int, ...]) -> Tokenizer:
    """Read a tokenizer.json.

    BOS is added if tokenizer_config.json has `add_bos_token: true`, or, where it does not say, if
    the file's own template puts a token in front of an empty text.

    Raises:
        InputError: a file that cannot be read, or BOS is asked for and not named.
    """
    read_json_object(path)  # size, depth and keys, before a library sees it
    with library_errors_explained(f"cannot read {path}"):
        backend = tokenizers.Tokenizer.from_file(str(path))
        # Some files keep how they were used in training. A prompt is never cut or filled up.
        backend.no_truncation()
        backend.no_padding()
        template: list[int] = backend.encode("").ids
    beside = path.with_name(_CONFIG)
    settings = read_json_object(beside) if beside.is_file() else {}
    bos_id = _bos_id(backend, settings.get("bos_token"), template)
    add_bos = settings.get("add_bos_token")
    if not isinstance(add_bos, bool):
        add_bos = bool(template) and template[0] == bos_id
    if add_bos and bos_id is None:
        raise InputError(f"{beside}: add_bos_token is true, but bos_token is not in {path.name}")
    return Tokenizer(backend, bos_id, eos_ids, add_bos, str(path))


def _bos_id(backend: tokenizers.Tokenizer, token: object, template: list[int]) -> int | None:
    """Of the token that the configuration names (a string, or an object with its `content`)."""
    text = token.get("content") if isinstance(token, dict) else token
    named: int | None = backend.token_to_id(text) if isinstance(text, str) else None
    return named if named is not None else next(iter(template), None)
