"""The process of one arm: `python -m llmprof.experiments.arm_worker`, driven line by line.

It ends with its input, so it never outlives the gate that started it.
"""

import importlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TextIO

from llmprof.errors import CapabilityError, LlmprofError, MeasurementFailedError
from llmprof.experiments.arm_messages import ArmFailure
from llmprof.schema.record import Record
from llmprof.schema.settings import RunConfig


def serve(requests: Iterable[str], replies: TextIO) -> None:
    """Answer each request with one line; after a failure nothing more is answered."""
    session: Any = None
    for line in requests:
        try:
            session, reply = _answer(session, json.loads(line))
        except Exception as error:  # noqa: BLE001 (whatever it is, the gate must be told)
            replies.write(_failure(error).model_dump_json() + "\n")
            replies.flush()
            return
        replies.write(reply.model_dump_json() + "\n")
        replies.flush()


def _answer(session: Any, request: Mapping[str, Any]) -> tuple[Any, Record]:
    match request["do"]:
        case "open":
            from llmprof.experiments.arm_session import ArmSession

            config = RunConfig.model_validate_json(json.dumps(request["settings"]), strict=True)
            session = ArmSession.open(config)
            return session, session.describe()
        case "profile":
            from llmprof.experiments.whole_run import whole_run

            config = RunConfig.model_validate_json(json.dumps(request["settings"]), strict=True)
            return session, whole_run(config)
        case "turn":
            return session, session.turn(request["seconds"])
        case "count":
            return session, session.count(ops=request["ops"])
        case other:
            raise MeasurementFailedError(f"this worker cannot '{other}': it is of another version")


def _failure(error: Exception) -> ArmFailure:
    if isinstance(error, LlmprofError):
        return ArmFailure(error=type(error).__name__, message=error.message, remedy=error.remedy)
    if isinstance(error, ModuleNotFoundError):
        return ArmFailure(
            error=CapabilityError.__name__,
            message=f"its Python has no {error.name}",
            remedy="Install what llmprof needs into that environment",
        )
    return ArmFailure(error="", message=f"{type(error).__name__}: {error}")


def main() -> None:
    """Keep the protocol's stream to itself: whatever else prints goes to stderr."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with suppress(Exception):  # what is missing is told by the first request
        importlib.import_module("llmprof.experiments.arm_session")  # while the other arm loads
    serve(sys.stdin, replies)


if __name__ == "__main__":
    main()
