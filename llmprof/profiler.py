"""The pipeline: settings in, one RunRecord out. Read this file first."""

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from llmprof import __version__
from llmprof.architectures.source import resolve_model
from llmprof.ceilings.collectives import measure_in_group
from llmprof.ceilings.measure import cached_ceilings
from llmprof.engine.capabilities import check_capabilities
from llmprof.engine.device import resolve_device
from llmprof.engine.engine import Engine
from llmprof.engine.launch_environment import check_launch, launch_from
from llmprof.engine.leading_workload import LeadingWorkload
from llmprof.engine.open_workload import open_workload
from llmprof.engine.probe import NullProbe, Probe
from llmprof.engine.rank_group import RankGroup, join_ranks
from llmprof.engine.rank_roles import following, leading, told_by_ranks
from llmprof.engine.unused_settings import check_all_used
from llmprof.engine.workload import Workload
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.peak_memory import forget_peak_memory, peak_memory_bytes
from llmprof.instruments.snapshot import resolve_threads, snapshot
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
) -> RunRecord:
    """Measure the model that `config` names, on the device that it names.

    Raises InputError, CapabilityError or MeasurementFailedError before anything is measured, and
    KeyboardInterrupt only if nothing was: a measurement that is interrupted, or fails later, comes
    back as `partial`.
    `before_saving` is called as soon as the rounds have ended: from there on an interrupt would
    lose them.
    """
    progress = progress or NullProgress()
    place = _find_place(config, argv)
    with leading(place.ranks):
        workload = _open(config, place, progress)
        record = measure(
            workload if place.ranks is None else LeadingWorkload(workload, place.ranks),
            config,
            device=place.device,
            threads=place.threads,
            argv=argv,
            progress=progress,
            before_saving=before_saving,
            rounds=rounds,
            collectives=_collectives(place, workload),
        )
        return told_by_ranks(record, place.ranks, of_machine=place.local_size)


def follow(config: RunConfig, *, argv: tuple[str, ...] = ()) -> None:
    """Be a rank other than the first: run every round that the first one measures.

    Raises what `profile` does before anything is measured, and then a failure of this rank.
    """
    place = _find_place(config, argv)
    assert place.ranks is not None, "a process by itself leads"
    with following(place.ranks):
        workload = _open(config, place, NullProgress())
        _collectives(place, workload)
        while place.ranks.next_round():
            workload.run_round(NullProbe())


@dataclass(frozen=True, slots=True)
class _Place:
    """Where this process computes, and with whom."""

    device: str
    threads: int
    ranks: RankGroup | None
    local_size: int
    """Processes on this machine that share out the model."""


def _find_place(config: RunConfig, argv: tuple[str, ...]) -> _Place:
    check_all_used(config)
    launch = launch_from(os.environ)
    check_launch(config, launch, command=shlex.join(argv[1:]))
    check_capabilities(config, ranks=launch.world_size)
    device = resolve_device(config.device, local_rank=launch.local_rank)
    return _Place(
        device=device,
        threads=resolve_threads(config.execution.threads, processes=launch.local_size),
        ranks=join_ranks(launch, device) if launch.world_size > 1 else None,
        local_size=launch.local_size,
    )


def _open(config: RunConfig, place: _Place, progress: Progress) -> Workload:
    forget_peak_memory(place.device)
    progress.note(f"loading {config.model} on {place.device}")
    source = resolve_model(config.model, weights=config.weights.source)
    engine = Engine.load(
        source,
        config,
        device=place.device,
        threads=place.threads,
        host_available_bytes=host_memory().available_bytes // place.local_size,
        ranks=place.ranks,
    )
    return open_workload(engine, config)


def _collectives(place: _Place, workload: Workload) -> tuple[CollectiveCeiling, ...]:
    """What the ranks need to exchange; measured by all of them together."""
    if place.ranks is None:
        return ()
    dtype = workload.needs.compute_dtype
    return measure_in_group(place.device, place.ranks.size, dtype=dtype)


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
