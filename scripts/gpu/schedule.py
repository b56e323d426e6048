"""Parts of a check, each in a process of its own, within one wall clock."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from scripts.gpu.lost_device import LOST

_GRACE_S: Final = 5.0
"""Between asking a process to end and ending it."""
_LEAST_AGAIN_S: Final = 10.0
"""torch alone takes some seconds to import."""


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    seconds: float
    """Its budget: it is given more where those before it left some, and less where the whole check is
    nearly over."""
    least_s: float
    """With less than this left it is not started."""


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    status: Literal["done", "failed", "out of time", "skipped"]
    seconds: float
    words: str = ""


Run = Callable[[Part, float], tuple[int | None, str]]
"""Run a part for at most so many seconds: its exit status (None: it ran out of time), and its last
line."""


def run_parts(
    parts: Sequence[Part],
    budget_s: float,
    run: Run,
    *,
    now_s: Callable[[], float] = time.perf_counter,
    told: Callable[[Outcome], None] = lambda outcome: None,
) -> tuple[Outcome, ...]:
    """Each part in turn; one that fails, or takes too long, loses none of the others.

    Time that a part leaves is the next one's; nobody takes from the budgets of those after it.
    """
    begin_s = now_s()
    outcomes = []
    for number, part in enumerate(parts):
        left_s = budget_s - (now_s() - begin_s)
        if left_s < part.least_s:
            words = f"{max(0.0, left_s):.0f} s were left, and it needs {part.least_s:.0f} s"
            outcome = Outcome(part.name, "skipped", 0.0, words)
        else:
            started_s = now_s()
            spare_s = left_s - sum(later.seconds for later in parts[number + 1 :])
            code, words = run(part, min(max(part.seconds, spare_s), left_s))
            outcome = _outcome(part, code, now_s() - started_s, words)
        outcomes.append(outcome)
        told(outcome)
    return tuple(outcomes)


def run_until_ended(
    run: Callable[[float], tuple[int | None, str]],
    seconds: float,
    *,
    now_s: Callable[[], float] = time.perf_counter,
) -> tuple[int | None, str]:
    """`run` in at most so many seconds, and again in what is left of them where it ends as `LOST`.

    Each has made at least one step that the next one leaves out, so that this ends by itself.
    """
    begin_s = now_s()
    while True:
        left_s = seconds - (now_s() - begin_s)
        code, words = run(left_s)
        if code != LOST or seconds - (now_s() - begin_s) < _LEAST_AGAIN_S:
            return code, words


def _outcome(part: Part, code: int | None, seconds: float, words: str) -> Outcome:
    if code is None:
        return Outcome(part.name, "out of time", seconds, words)
    return Outcome(part.name, "failed" if code else "done", seconds, words)


def run_process(
    command: Sequence[str], seconds: float, log: Path, environment: Mapping[str, str]
) -> tuple[int | None, str]:
    """Run a command in a process group, everything that it prints added to `log`.

    However this ends, an interrupt included, nothing of the group is left: it could hold a GPU. It is
    no session of its own: whoever kills all of this one must not miss it.

    Returns:
        Its exit status, None if it was ended for its time, and the last line of the log.
    """
    with log.open("ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=dict(environment),
            process_group=0,
        )
        code: int | None = None
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            _ask_to_end(process)
        finally:
            _end(process)
    lines = log.read_text(errors="replace").strip().splitlines()
    return code, lines[-1][:300] if lines else ""


def _ask_to_end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_GRACE_S)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """The whole group: a part may have started processes of its own, which outlive it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_GRACE_S)
