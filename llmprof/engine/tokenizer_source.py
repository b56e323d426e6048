"""Which tokenizer belongs to a model."""

from llmprof.architectures.gguf_header import MAGIC
from llmprof.architectures.source import ModelSource
from llmprof.engine.tokenizer import Tokenizer
from llmprof.engine.tokenizer_gguf import tokenizer_from_gguf
from llmprof.engine.tokenizer_json import tokenizer_from_json
from llmprof.errors import InputError


def load_tokenizer(source: ModelSource) -> Tokenizer:
    """The tokenizer that came with a model: in its GGUF file, or as tokenizer.json.

    Raises:
        InputError: there is none, or its file is damaged.
        CapabilityError: a kind of tokenizer that cannot be reproduced exactly.
    """
    path = source.tokenizer
    if path is None:
        raise InputError(
            f"{source.name} has no tokenizer, so text cannot be read",
            remedy="Give a GGUF file, or a folder with a tokenizer.json",
        )
    try:
        with path.open("rb") as file:
            is_gguf = file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    read = tokenizer_from_gguf if is_gguf else tokenizer_from_json
    return read(path, source.config.eos_token_ids)
