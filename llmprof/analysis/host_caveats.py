"""What the host's scheduler says about a run beside the rounds that were rejected for it."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from llmprof import units
from llmprof.schema.measurement import Caveat
from llmprof.schema.run import Round, RunRecord

NOTABLE_PRESSURE: Final = 0.25
"""Share of the time in which some task of the system waited for a CPU, while those of this run did
not: others kept the cores busy, and with them caches and memory."""


def host_caveats(record: RunRecord, rounds: Sequence[Round]) -> Iterator[Caveat]:
    """Of the rounds that count: a CPU quota below the threads, threads that sleep, others that wait."""
    yield from _quota(record)
    yield from _sleep(record)
    yield from _pressure(rounds)


def _quota(record: RunRecord) -> Iterator[Caveat]:
    """Whole cores fit below every quota of one or more, so this is of a fraction of a core."""
    quota_cores, threads = record.environment.cpu.quota_cores, record.environment.threads
    if quota_cores is not None and threads > quota_cores:
        named = "1 thread" if threads == 1 else f"{threads} threads"
        yield Caveat(
            code="cpu-quota",
            message=f"a control group allows {units.significant(quota_cores)} cores' worth of CPU "
            f"time, and {named} would use more: all of them stand still when it is used up",
            remedy="Lift the limit (docker run --cpus, resources.limits.cpu of a pod).",
        )


def _sleep(record: RunRecord) -> Iterator[Caveat]:
    environment = record.environment
    setting = environment.sleeps_between_ops
    if setting is not None and environment.gpu is None and environment.threads > 1:
        yield Caveat(
            code="threads-sleep",
            message=f"{setting}: threads sleep whenever they wait, and every op has to wake them",
            remedy=f"Unset {setting.partition('=')[0]}.",
        )


def _pressure(rounds: Sequence[Round]) -> Iterator[Caveat]:
    known = [one.contention.pressure_fraction for one in rounds]
    shares = [share for share in known if share is not None]
    usual = median(shares) if shares else 0.0
    if usual > NOTABLE_PRESSURE:
        yield Caveat(
            code="pressure",
            message=f"tasks of this system waited for a CPU in {units.percent(usual)} of the time of "
            "the median round: other programs ran beside this one and used caches and memory, as "
            "they did beside the ceilings",
            remedy="Stop other programs, and see `llmprof doctor`.",
        )
