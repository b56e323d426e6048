"""Text from the engine: what `llmprof generate --json` prints."""

from typing import Literal

from pydantic import Field

from llmprof.schema.record import Record


class Generation(Record):
    schema_: Literal["llmprof.generation/1"] = Field(default="llmprof.generation/1", alias="schema")
    model: str
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    text: str
    stopped: Literal["max_tokens", "eos"]
    random_weights: bool
