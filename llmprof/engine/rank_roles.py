"""What the first rank does beside measuring, and the others beside computing.

The first one measures and speaks. The others follow it: they leave signals to it, and tell it why
they failed.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from llmprof.engine.rank_group import LostRankError, RankGroup, Word, leave_ranks
from llmprof.errors import LlmprofError, MeasurementFailedError
from llmprof.schema.measurement import Caveat
from llmprof.schema.run import RunRecord


@contextmanager
def leading(ranks: RankGroup | None) -> Iterator[None]:
    """Around a measurement; of a process by itself (None) it changes nothing.

    Raises:
        MeasurementFailedError: instead of the interrupt by which torchrun ends the others when one
            rank has failed.
    """
    try:
        yield
    except KeyboardInterrupt:
        said = None if ranks is None else ranks.failure()
        if said is None:
            raise
        raise MeasurementFailedError(said) from None


def told_by_ranks(record: RunRecord, ranks: RankGroup | None, *, of_machine: int) -> RunRecord:
    """Send the others home when all is measured; else say which of them failed, if one did.

    The record says what of it is one rank's; `of_machine` ranks share this machine.
    """
    if ranks is None:
        return record
    about = _about_ranks(ranks, of_machine)
    record = record.model_copy(update={"caveats": (*record.caveats, *about)})
    if record.status == "complete":
        ranks.announce(Word.END)
        leave_ranks()
        return record
    said = ranks.failure()
    if said is None or record.failed:
        return record
    reason = f"failed ({said}) after {len(record.rounds)} rounds"
    return record.model_copy(update={"failed": True, "status_reason": reason})


def _about_ranks(ranks: RankGroup, of_machine: int) -> Iterator[Caveat]:
    yield Caveat(
        code="one-of-ranks",
        message=f"weights, KV cache, FLOPs, bytes, memory and times are those of the first of "
        f"{ranks.size} ranks; tokens are those of all together",
    )
    if ranks.backend == "gloo" and of_machine > 1:
        yield Caveat(
            code="ranks-share-memory",
            message=f"{of_machine} ranks share the memory and the caches of one machine: the "
            "ceilings were read by the first of them alone, and each reaches less beside the others",
            remedy="Judge tensor parallel by runs on GPUs; here it shows that the tokens agree",
        )


@contextmanager
def following(ranks: RankGroup) -> Iterator[None]:
    """Around the rounds of a rank other than the first, until that one says that it is done."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        yield
    except LostRankError:
        raise
    except LlmprofError as error:
        ranks.report_failure(error.line())
        raise
    except Exception as error:
        ranks.report_failure(f"{type(error).__name__}: {error}")
        raise
    leave_ranks()
