"""The gate's end of a worker process."""

import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from pydantic import ValidationError

from llmprof import errors
from llmprof.errors import LlmprofError, MeasurementFailedError
from llmprof.experiments.arm_messages import (
    PROTOCOL,
    ArmCounters,
    ArmDescription,
    ArmFailure,
    Turn,
    WholeRun,
)
from llmprof.schema.record import Record
from llmprof.schema.settings import RunConfig

Reply = TypeVar("Reply", bound=Record)
_MODULE = "llmprof.experiments.arm_worker"
_LONGEST_REASON = 300
_NO_WORKER = re.compile(r"No module named '?(llmprof[\w.]*)")
"""How Python ends where `-m` finds no such module."""


@dataclass(frozen=True, slots=True)
class ArmPlan:
    """What an arm runs, and by which interpreter."""

    label: str
    config: RunConfig
    python: str | None = None
    """Another environment's interpreter; null for this one's."""


class ArmProcess:
    """One arm, started on entering the block and ended with it. Idle between its turns.

    Raises:
        MeasurementFailedError: the process ended, or speaks another version.
        CapabilityError: its interpreter has no llmprof, or one that cannot be a worker.
        LlmprofError: whatever the arm itself raised, with the arm's name before it.
    """

    def __init__(self, plan: ArmPlan) -> None:
        self.plan = plan

    def __enter__(self) -> "ArmProcess":
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        try:
            self._process = subprocess.Popen(
                # -P: a checkout in the current folder must not win over the environment's llmprof.
                [self.plan.python or sys.executable, "-P", "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                encoding="utf-8",
                env=_environment(self.plan),
            )
        except OSError as error:
            self._errors.close()
            raise errors.InputError(
                f"cannot start {self.plan.python}: {error.strerror}",
                remedy="Give the path of a Python interpreter with llmprof installed",
            ) from error
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise AssertionError("both were asked for")
        self._stdin, self._stdout = stdin, stdout
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # It holds nothing worth a farewell, and an interpreter with torch takes seconds to say it.
        self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()
        self._errors.close()

    def open(self) -> ArmDescription:
        """Load and warm up; an older version is spared the settings that nobody set."""
        settings = self.plan.config.model_dump(mode="json", exclude_unset=True)
        settings.pop("gate", None)
        self._send({"do": "open", "settings": settings})
        description = self._receive(ArmDescription)
        if description.protocol != PROTOCOL:
            raise MeasurementFailedError(
                f"{self.plan.label}: its llmprof speaks version {description.protocol} of the "
                f"gate's protocol, this one {PROTOCOL}",
                remedy="Use versions of llmprof that are closer together",
            )
        return description

    def turn(self, seconds: float) -> Turn:
        self._send({"do": "turn", "seconds": seconds})
        return self._receive(Turn)

    def count(self, *, ops: bool) -> ArmCounters:
        """Bytes held and the peak; `ops` runs a round more to record every operator."""
        self._send({"do": "count", "ops": ops})
        return self._receive(ArmCounters)

    def profile(self) -> WholeRun:
        """Load, measure as `measure` says, and count: a run of its own."""
        self._send({"do": "profile", "settings": self.plan.config.model_dump(mode="json")})
        return self._receive(WholeRun)

    def _send(self, request: dict[str, Any]) -> None:
        try:
            self._stdin.write(json.dumps(request) + "\n")
            self._stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error

    def _receive(self, kind: type[Reply]) -> Reply:
        line = self._stdout.readline()
        if not line.endswith("\n"):
            raise self._ended()
        try:
            return kind.model_validate_json(line)
        except ValidationError as error:
            raise self._told(line) from error

    def _told(self, line: str) -> LlmprofError:
        """The arm's own error, as the class that it was where it is one of ours."""
        try:
            failure = ArmFailure.model_validate_json(line)
        except ValidationError:
            return MeasurementFailedError(
                f"{self.plan.label}: its llmprof answers in a form that this one does not know",
                remedy="Use versions of llmprof that are closer together",
            )
        known = getattr(errors, failure.error, MeasurementFailedError)
        return known(f"{self.plan.label}: {failure.message}", remedy=failure.remedy)

    def _ended(self) -> LlmprofError:
        """It went away without a word of its own: what it last printed says why."""
        code = self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        if lines and (missing := _NO_WORKER.search(lines[-1])):
            without = "no llmprof" if missing[1] == "llmprof" else "an llmprof without gate workers"
            return errors.CapabilityError(
                f"{self.plan.label}: its Python has {without}",
                remedy="Install this version of llmprof, or one close to it, into that environment",
            )
        reason = f": {lines[-1][:_LONGEST_REASON]}" if lines else ""
        died = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
        return MeasurementFailedError(f"{self.plan.label}: its process {died}{reason}")


def _environment(plan: ArmPlan) -> dict[str, str]:
    """PYTHONPATH belongs to this interpreter, and would hide another one's llmprof."""
    inherited = dict(os.environ)
    if plan.python is not None:
        inherited.pop("PYTHONPATH", None)
    return inherited
