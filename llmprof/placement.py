"""Where a run computes, alone or as one of several ranks, and the workload that it opens there."""

import os
import shlex
from dataclasses import dataclass

from llmprof.architectures.source import resolve_model
from llmprof.ceilings.collectives import measure_in_group
from llmprof.engine.capabilities import check_capabilities
from llmprof.engine.device import resolve_device
from llmprof.engine.engine import Engine
from llmprof.engine.kept_weights import KeptWeights
from llmprof.engine.launch_environment import check_launch, launch_from
from llmprof.engine.leading_workload import LeadingWorkload
from llmprof.engine.open_workload import open_workload
from llmprof.engine.probe import NullProbe
from llmprof.engine.rank_group import RankGroup, Word, join_ranks
from llmprof.engine.rank_roles import following
from llmprof.engine.unused_settings import check_all_used
from llmprof.engine.workload import Workload
from llmprof.instruments.host_memory import host_memory
from llmprof.instruments.nvtx_ranges import open_ranges
from llmprof.instruments.peak_memory import forget_peak_memory
from llmprof.instruments.snapshot import resolve_threads
from llmprof.schema.ceilings import CollectiveCeiling
from llmprof.schema.settings import Pass, RunConfig
from llmprof.store.progress import NullProgress, Progress


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process computes, and with whom."""

    device: str
    threads: int
    ranks: RankGroup | None
    local_size: int
    """Processes on this machine that share out the model."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A workload at its place, in memory."""

    workload: Workload
    collectives: tuple[CollectiveCeiling, ...]
    """What the ranks need to exchange, measured by all of them together; none for one alone."""


def find_place(config: RunConfig, argv: tuple[str, ...]) -> Place:
    """Device, threads and ranks of this process, before anything is loaded.

    Raises:
        InputError, CapabilityError: settings that this machine, this engine or this launch cannot do.
    """
    check_all_used(config)
    launch = launch_from(os.environ)
    check_launch(config, launch, command=shlex.join(argv[1:]))
    check_capabilities(config, ranks=launch.world_size)
    device = resolve_device(config.device, local_rank=launch.local_rank)
    if Pass.NVTX in config.measure.passes:
        open_ranges(device)
    return Place(
        device=device,
        threads=resolve_threads(config.execution.threads, processes=launch.local_size),
        ranks=join_ranks(launch, device) if launch.world_size > 1 else None,
        local_size=launch.local_size,
    )


def open_at(
    place: Place, config: RunConfig, progress: Progress, kept: KeptWeights | None = None
) -> Opened:
    """Load the model that `config` names; the first of several ranks leads the others.

    One process alone takes the weights that are `kept` from an earlier run where they are the same.

    Raises:
        InputError, CapabilityError, MeasurementFailedError: as `Engine.load`.
    """
    engine = _engine_at(place, config, progress, kept)
    forget_peak_memory(place.device)
    workload = open_workload(engine, config)
    if place.ranks is None:
        return Opened(workload, ())
    dtype = workload.needs.compute_dtype
    collectives = measure_in_group(place.device, place.ranks.size, dtype=dtype)
    leads = place.ranks.rank == 0
    return Opened(LeadingWorkload(workload, place.ranks) if leads else workload, collectives)


def _engine_at(
    place: Place, config: RunConfig, progress: Progress, kept: KeptWeights | None
) -> Engine:
    source = resolve_model(config.model, weights=config.weights.source)
    if kept is not None and place.ranks is None:
        return kept.engine(
            source,
            config,
            device=place.device,
            threads=place.threads,
            host_available_bytes=lambda: host_memory().available_bytes,
            progress=progress,
        )
    progress.note(f"loading {config.model} on {place.device}")
    return Engine.load(
        source,
        config,
        device=place.device,
        threads=place.threads,
        host_available_bytes=host_memory().available_bytes // place.local_size,
        ranks=place.ranks,
        progress=progress,
    )


def follow(config: RunConfig, *, argv: tuple[str, ...] = ()) -> None:
    """Be a rank other than the first: run every round that the first one measures.

    Raises what `find_place` and `open_at` do, and then a failure of this rank.
    """
    place = find_place(config, argv)
    assert place.ranks is not None, "a process by itself leads"
    with following(place.ranks):
        workload = open_at(place, config, NullProgress()).workload
        while (word := place.ranks.next_word()) is not Word.END:
            if word is Word.LEAD_IN:
                workload.lead_in()
            else:
                workload.run_round(NullProbe())
