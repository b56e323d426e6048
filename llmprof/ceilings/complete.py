"""The ceilings that a run does not need: measured when somebody asks, and kept beside the others."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import torch

from llmprof.ceilings.attention import measure_attention
from llmprof.ceilings.collectives import measure_collectives
from llmprof.ceilings.device_clock import device_clock
from llmprof.ceilings.gpm_calibration import measure_gpm
from llmprof.ceilings.host_cost import measure_host_costs
from llmprof.ceilings.measure import cached_ceilings, keep_ceilings, torch_threads
from llmprof.ceilings.quiet import is_contended
from llmprof.ceilings.skinny_formats import measure_skinny
from llmprof.ceilings.sustained import measure_sustained
from llmprof.instruments.contention import ContentionMeter
from llmprof.schema.ceilings import Ceilings
from llmprof.schema.environment import Environment
from llmprof.store.progress import NullProgress, Progress

MAX_AGE: Final = timedelta(days=30)


class ExtraPart(StrEnum):
    """Named as the fields of `Ceilings` that they fill."""

    SKINNY = "skinny"
    ATTENTION = "attention"
    HOST = "host"
    SUSTAINED = "sustained"
    COLLECTIVES = "collectives"
    GPM = "gpm"


USUAL: Final = (ExtraPart.SKINNY, ExtraPart.ATTENTION, ExtraPart.HOST, ExtraPart.GPM)
"""Measured by `llmprof ceilings` unless it is told otherwise."""
_SECONDS: Final[Mapping[ExtraPart, float]] = {
    ExtraPart.SKINNY: 4.0,
    ExtraPart.ATTENTION: 5.0,
    ExtraPart.HOST: 2.0,
    ExtraPart.SUSTAINED: 10.0,
    ExtraPart.COLLECTIVES: 2.0,
    ExtraPart.GPM: 1.0,
}
"""Of measuring alone; memory to work on takes about as long again."""
_MAX_AGE_CONTENDED: Final = timedelta(hours=1)


def complete_ceilings(
    environment: Environment,
    device: str,
    parts: Iterable[ExtraPart] = USUAL,
    *,
    refresh: bool = False,
    refresh_base: bool = False,
    budget_s: float | None = None,
    processes: int = 2,
    progress: Progress | None = None,
    now: datetime | None = None,
) -> Ceilings:
    """The cached ceilings with these parts in them: from the cache while younger than 30 days.

    Args:
        environment: of the device and the threads.
        device: `cpu` or `cuda:N`.
        parts: what must be there afterwards; others stay as they are.
        refresh: measure the parts again.
        refresh_base: measure bandwidth, matmuls and fixed cost again.
        budget_s: seconds of measuring for the parts that are due together; each has its own
            share by default, 12 s for the usual ones.
        processes: that take part in collectives.
        progress: told about each part.
        now: for the age.
    """
    progress = progress or NullProgress()
    now = now or datetime.now(UTC)
    ceilings = cached_ceilings(
        environment, device, refresh=refresh_base, progress=progress, now=now
    )
    wanted = tuple(dict.fromkeys(parts))
    due = [part for part in wanted if refresh or not is_fresh(ceilings, part, now)]
    scale = 1.0 if budget_s is None else budget_s / sum(_SECONDS[part] for part in due or wanted)
    for part in due:
        progress.note(f"ceilings: {part.value}")
        budget = _SECONDS[part] * scale
        meter = ContentionMeter(environment.threads)
        with torch.inference_mode(), torch_threads(environment.threads):
            found = _measure(part, ceilings, device, budget, processes, progress)
        contended = is_contended(meter.stop())
        ceilings = _with_part(ceilings, part, found, now, contended=contended)
        keep_ceilings(ceilings)
    return ceilings


def is_fresh(ceilings: Ceilings, part: ExtraPart, now: datetime) -> bool:
    """Measured, not long ago: within 30 days, or an hour where other processes disturbed it."""
    then = ceilings.parts_measured_at.get(part.value)
    disturbed = part.value in ceilings.contended_parts or _is_unsteady(ceilings, part)
    most = _MAX_AGE_CONTENDED if disturbed else MAX_AGE
    return then is not None and timedelta() <= now - then <= most


def _is_unsteady(ceilings: Ceilings, part: ExtraPart) -> bool:
    """Most roofs of kernels are of no use: something disturbed them that no counter here tells of."""
    match part:
        case ExtraPart.SKINNY:
            return 2 * len(ceilings.steady_skinny) < len(ceilings.skinny)
        case ExtraPart.ATTENTION:
            return 2 * len(ceilings.steady_attention) < len(ceilings.attention)
        case _:
            return False


def _measure(
    part: ExtraPart,
    ceilings: Ceilings,
    device: str,
    budget_s: float,
    processes: int,
    progress: Progress,
) -> tuple[Any, ...]:
    environment, bandwidth = ceilings.environment, ceilings.bandwidth
    match part:
        case ExtraPart.SKINNY:
            return measure_skinny(
                environment, device, bandwidth, budget_s=budget_s, progress=progress
            )
        case ExtraPart.ATTENTION:
            return measure_attention(
                environment, device, bandwidth, budget_s=budget_s, progress=progress
            )
        case ExtraPart.HOST:
            return measure_host_costs(environment, device, budget_s=budget_s, progress=progress)
        case ExtraPart.SUSTAINED:
            each = budget_s / len(ceilings.compute)
            with device_clock(environment) as sm_clock_hz:
                return measure_sustained(
                    ceilings.compute,
                    device,
                    seconds_each=each,
                    progress=progress,
                    sm_clock_hz=sm_clock_hz,
                )
        case ExtraPart.GPM:
            return measure_gpm(environment, device, budget_s=budget_s)
        case ExtraPart.COLLECTIVES:
            return measure_collectives(
                device, processes, threads=environment.threads, progress=progress
            )


def _with_part(
    ceilings: Ceilings, part: ExtraPart, found: tuple[Any, ...], now: datetime, *, contended: bool
) -> Ceilings:
    others = {one for one in ceilings.contended_parts if one != part.value}
    return ceilings.model_copy(
        update={
            part.value: found,
            "parts_measured_at": {**ceilings.parts_measured_at, part.value: now},
            "contended_parts": tuple(sorted(others | ({part.value} if contended else set()))),
        }
    )
