"""The pipeline: settings in, one RunRecord out. Read this file first."""

from collections.abc import Callable
from pathlib import PurePath

from llmprof import __version__
from llmprof.ceilings.measure import cached_ceilings
from llmprof.engine.kept_weights import KeptWeights
from llmprof.engine.probe import Probe
from llmprof.engine.rank_roles import leading, told_by_ranks
from llmprof.engine.workload import Workload
from llmprof.instruments.peak_memory import peak_memory_bytes
from llmprof.instruments.snapshot import snapshot
from llmprof.placement import find_place, open_at
from llmprof.schema.ceilings import CollectiveCeiling
from llmprof.schema.run import (
    RunRecord,
    Tool,
)
from llmprof.schema.settings import RunConfig
from llmprof.session import Injection, Session
from llmprof.store.progress import NullProgress, Progress
from llmprof.store.runs import new_run_id

Rounds = Callable[[Session], None]
"""The rounds of a session, in the order that its experiment wants."""


def profile(
    config: RunConfig,
    *,
    argv: tuple[str, ...] = (),
    progress: Progress | None = None,
    before_saving: Callable[[], None] | None = None,
    rounds: Rounds | None = None,
    kept: KeptWeights | None = None,
) -> RunRecord:
    """Measure the model that `config` names, on the device that it names.

    Raises InputError, CapabilityError or MeasurementFailedError before anything is measured, and
    KeyboardInterrupt only if nothing was: a measurement that is interrupted, or fails later, comes
    back as `partial`.
    `before_saving` is called as soon as the rounds have ended: from there on an interrupt would
    lose them. `kept` spares the loading of weights that an earlier run has left there.
    """
    progress = progress or NullProgress()
    place = find_place(config, argv)
    with leading(place.ranks):
        opened = open_at(place, config, progress, kept)
        record = measure(
            opened.workload,
            config,
            device=place.device,
            threads=place.threads,
            argv=argv,
            progress=progress,
            before_saving=before_saving,
            rounds=rounds,
            collectives=opened.collectives,
        )
        return told_by_ranks(record, place.ranks, of_machine=place.local_size)


def measure(
    workload: Workload,
    config: RunConfig,
    *,
    device: str,
    threads: int,
    argv: tuple[str, ...] = (),
    progress: Progress | None = None,
    inject: Injection | None = None,
    before_saving: Callable[[], None] | None = None,
    rounds: Rounds | None = None,
    collectives: tuple[CollectiveCeiling, ...] = (),
) -> RunRecord:
    """Measure any workload: ceilings, warm-up, counting, then clean and grouped rounds in turn.

    `rounds` runs them in another order, as where two sessions take turns. `collectives` are those
    of the processes that share out the work.
    """
    progress = progress or NullProgress()
    environment = snapshot(device, threads)
    ceilings = cached_ceilings(environment, device, progress=progress)
    if collectives:
        ceilings = ceilings.model_copy(update={"collectives": collectives})
    session = Session(
        workload,
        config,
        environment,
        ceilings,
        progress,
        inject or _unchanged,
        before_saving or _nothing,
    )
    session.warm_up()
    session.count()
    (rounds or Session.measure_rounds)(session)
    return RunRecord(
        id=new_run_id(session.created, config),
        created=session.created,
        status="partial" if session.interrupted else "complete",
        status_reason=session.interrupted,
        failed=session.failed,
        tool=Tool(version=__version__, argv=tuple(PurePath(word).name for word in argv)),
        settings=config,
        environment=environment,
        model=workload.model,
        weights=workload.weights,
        stated_costs=workload.stated_costs,
        engine=workload.describe(),
        ceilings=ceilings,
        warmup=session.warmup,
        rounds=tuple(session.rounds),
        grouped=tuple(session.grouped),
        counted=session.counted,
        traced=tuple(session.traced),
        trace=session.trace,
        energy=session.energy,
        own_cost=session.own_cost(),
        output_sha256=session.output_sha256,
        phases=workload.phases,
        peak_memory_bytes=peak_memory_bytes(device),
        caveats=tuple(session.caveats),
    )


def _unchanged(probe: Probe) -> Probe:
    return probe


def _nothing() -> None:
    pass
