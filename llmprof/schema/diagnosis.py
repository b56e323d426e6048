"""What this machine can measure: what `llmprof doctor` prints."""

from typing import Literal

from pydantic import Field

from llmprof.schema.environment import Environment
from llmprof.schema.record import Record


class Check(Record):
    name: str
    status: Literal["ok", "warn", "missing"]
    detail: str
    remedy: str | None = None


class Diagnosis(Record):
    schema_: Literal["llmprof.diagnosis/1"] = Field(default="llmprof.diagnosis/1", alias="schema")
    environment: Environment
    checks: tuple[Check, ...]
