"""All ceilings of a device: measured once per device and software, then kept in the user cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import torch
from pydantic import ValidationError

from llmprof.ceilings.bandwidth import measure_bandwidth
from llmprof.ceilings.device_clock import device_clock
from llmprof.ceilings.fixed_cost import measure_fixed_cost
from llmprof.ceilings.matmul import measure_matmuls
from llmprof.ceilings.quiet import is_contended
from llmprof.devices.lookup import datasheet_of
from llmprof.instruments.contention import ContentionMeter
from llmprof.schema.ceilings import Ceilings
from llmprof.schema.datasheet import Datasheet
from llmprof.schema.environment import Environment
from llmprof.schema.measurement import Caveat
from llmprof.schema.run import Contention
from llmprof.store.progress import NullProgress, Progress
from llmprof.store.user_cache import read_cached, write_cached
from llmprof.units import percent

_KIND = "ceilings"
_METHOD = 3
"""Raised whenever a figure is measured in another way, so that no older one is taken for it."""
_MAX_AGE = timedelta(days=30)
_MAX_AGE_CONTENDED = timedelta(hours=1)
_CONTENDED = "ceilings-contended"
_BANDWIDTH_S, _MATMUL_S = 4.0, 5.0
_QUICK = 0.1
"""Share of the time that a quick measurement takes."""


def cached_ceilings(
    environment: Environment,
    device: str,
    *,
    refresh: bool = False,
    progress: Progress | None = None,
    now: datetime | None = None,
) -> Ceilings:
    """The ceilings of this device and software: from the cache while fresh, else measured.

    They expire after 30 days, and after an hour where other processes had disturbed them. A cache
    file that cannot be read is measured again, with a caveat that says so.
    """
    progress = progress or NullProgress()
    now = now or datetime.now(UTC)
    key = _cache_key(environment)
    data = read_cached(_KIND, key)
    cached = None if data is None else _parse(data)
    if not refresh and cached is not None and _still_holds(cached, environment, now):
        return _with_datasheet(cached)
    progress.note("measuring the ceilings of this device (once, about 15 s)")
    ceilings = _carry_over(cached, measure_ceilings(environment, device, progress=progress))
    keep_ceilings(ceilings)
    if not refresh and data is not None and cached is None:
        return _with_datasheet(_with_caveats(ceilings, _corrupt_cache()))
    return _with_datasheet(ceilings)


def keep_ceilings(ceilings: Ceilings) -> None:
    """Write them to the user cache, for the device and software that they are of."""
    key = _cache_key(ceilings.environment)
    write_cached(_KIND, key, ceilings.model_dump_json(indent=1).encode())


def measure_ceilings(
    environment: Environment,
    device: str,
    *,
    quick: bool = False,
    progress: Progress | None = None,
) -> Ceilings:
    """Measure every ceiling with the environment's threads: 10 to 15 s, or about 3 s if `quick`."""
    progress = progress or NullProgress()
    share = _QUICK if quick else 1.0
    meter = ContentionMeter(environment.threads)
    meter.start()
    with torch.inference_mode(), torch_threads(environment.threads):
        progress.note("bandwidth of each level of memory")
        bandwidth, about_levels = measure_bandwidth(
            environment, device, budget_s=_BANDWIDTH_S * share
        )
        with device_clock(environment) as sm_clock_hz:
            compute, about_dtypes = measure_matmuls(
                device, budget_s=_MATMUL_S * share, progress=progress, sm_clock_hz=sm_clock_hz
            )
        progress.note("fixed cost of one op")
        fixed_cost = measure_fixed_cost(environment, device)
    if device != "cpu":
        torch.cuda.empty_cache()
    return Ceilings(
        measured_at=datetime.now(UTC),
        environment=environment,
        bandwidth=bandwidth,
        compute=compute,
        fixed_cost=fixed_cost,
        caveats=(*about_levels, *about_dtypes, *_about_contention(meter.stop())),
    )


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """As many threads of torch; as before, after."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _cache_key(environment: Environment) -> str:
    """Two equal GPUs share a fingerprint but not their ceilings: they differ by 5 % and more."""
    device = "" if environment.gpu is None else f"-{environment.gpu.uuid}"
    return f"{environment.fingerprint}{device}-{_METHOD}"


def _carry_over(old: Ceilings | None, new: Ceilings) -> Ceilings:
    """What was measured on demand stays, with its own age: it has the same device and software."""
    if old is None:
        return new
    parts = (*old.parts_measured_at, "parts_measured_at", "contended_parts")
    return new.model_copy(update={part: getattr(old, part) for part in parts})


def _parse(data: bytes) -> Ceilings | None:
    try:
        ceilings = Ceilings.model_validate_json(data)
    except ValidationError:
        return None
    return ceilings if ceilings.bandwidth and ceilings.compute else None


def _still_holds(cached: Ceilings, environment: Environment, now: datetime) -> bool:
    then = cached.environment
    contended = any(caveat.code == _CONTENDED for caveat in cached.caveats)
    age = now - cached.measured_at
    return (
        (then.fingerprint, then.device, then.threads)
        == (environment.fingerprint, environment.device, environment.threads)
        and then.versions.get("torch") == environment.versions.get("torch")
        and timedelta() <= age <= (_MAX_AGE_CONTENDED if contended else _MAX_AGE)
    )


def _about_contention(contention: Contention) -> tuple[Caveat, ...]:
    waited = contention.run_queue_fraction
    if waited is None or not is_contended(contention):
        return ()
    message = (
        f"while the ceilings were measured, other processes kept this one waiting for a core for "
        f"{percent(waited)} of the time: they may be too low"
    )
    remedy = "Measure again on a quiet machine: llmprof ceilings --refresh"
    return (Caveat(code=_CONTENDED, message=message, remedy=remedy),)


def _corrupt_cache() -> Caveat:
    return Caveat(
        code="ceilings-cache-corrupt",
        message="the cached ceilings of this device could not be read: measured again",
    )


def _with_datasheet(ceilings: Ceilings) -> Ceilings:
    """Looked up anew every time: the table of this version, not that of the one that measured."""
    found = datasheet_of(ceilings.environment)
    known = found if isinstance(found, Datasheet) else None
    return ceilings.model_copy(update={"datasheet": known})


def _with_caveats(ceilings: Ceilings, *more: Caveat) -> Ceilings:
    return ceilings.model_copy(update={"caveats": (*ceilings.caveats, *more)})
