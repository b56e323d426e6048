"""Collectives between processes: a fixed cost and a bandwidth, from a line through a few sizes."""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import torch

from llmprof.ceilings.line_fit import line_through
from llmprof.engine.dtypes import TORCH_DTYPES
from llmprof.errors import MeasurementFailedError
from llmprof.schema.ceilings import CollectiveCeiling
from llmprof.store.progress import Progress

Op = Literal["all_reduce", "all_gather"]

OPS: Final[tuple[Op, ...]] = ("all_reduce", "all_gather")
SIZES_BYTES: Final = (1 << 10, 4 << 10, 64 << 10, 1 << 20, 8 << 20)
"""Of one rank's buffer: hidden states of a decode step, up to those of a prompt."""
_REPEATS: Final = 9
_TIMEOUT_S: Final = 120.0


def measure_collectives(
    device: str, processes: int, *, threads: int, progress: Progress
) -> tuple[CollectiveCeiling, ...]:
    """One per op, over `processes` ranks on this machine: gloo on CPUs, NCCL on GPUs.

    Raises:
        MeasurementFailedError: a rank did not come up or died.
    """
    progress.note(f"collectives of {processes} processes")
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        times_s = _ranks(store, device, processes, max(1, threads // processes))
    backend = _backend(device)
    return tuple(fit_line(op, times_s[op], backend=backend, world_size=processes) for op in OPS)


def measure_in_group(
    device: str, processes: int, *, dtype: str = "bf16"
) -> tuple[CollectiveCeiling, ...]:
    """One per op, in the group that this process has joined: every rank must come here.

    The result holds what this rank timed. `dtype` (fp32, bf16, fp16) is that of the numbers: on a
    CPU some are added up faster than others.
    """
    place = TORCH_DTYPES[dtype], device
    return tuple(
        fit_line(
            op,
            [_time_s(op, size, *place, processes) for size in SIZES_BYTES],
            backend=_backend(device),
            world_size=processes,
            dtype=dtype,
        )
        for op in OPS
    )


def fit_line(
    op: Op, times_s: Sequence[float], *, backend: str, world_size: int, dtype: str = "bf16"
) -> CollectiveCeiling:
    """Alpha and bytes/s of the line with the least relative errors through the sizes' times."""
    line = line_through(SIZES_BYTES, times_s)
    return CollectiveCeiling(
        op=op,
        backend=backend,
        world_size=world_size,
        dtype=dtype,
        alpha_s=line.alpha_s,
        bytes_per_s=line.bytes_per_s,
        spread=line.worst_error,
        sizes_bytes=SIZES_BYTES,
    )


def _backend(device: str) -> str:
    return "gloo" if device == "cpu" else "nccl"


def _ranks(store: Path, device: str, processes: int, threads: int) -> dict[Op, list[float]]:
    """Seconds per size and op, as rank 0 timed them."""
    import torch.multiprocessing

    context: Any = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    workers = [
        context.Process(
            target=run_rank, args=(rank, processes, str(store), device, threads, queue), daemon=True
        )
        for rank in range(processes)
    ]
    for worker in workers:
        worker.start()
    deadline = time.monotonic() + _TIMEOUT_S
    while queue.empty():
        dead = [worker.exitcode for worker in workers if worker.exitcode]
        if dead or time.monotonic() > deadline:
            _stop(workers)
            raise MeasurementFailedError(
                "the collectives were not measured: "
                + (f"a rank ended with code {dead[0]}" if dead else "the ranks did not meet"),
                remedy="Check that processes on this machine may open sockets to each other",
            )
        time.sleep(0.02)
    times_s: dict[Op, list[float]] = queue.get()
    _stop(workers)
    return times_s


def _stop(workers: Sequence[Any]) -> None:
    for worker in workers:
        worker.join(timeout=5)
        if worker.is_alive():
            worker.terminate()


def run_rank(rank: int, world_size: int, store: str, device: str, threads: int, queue: Any) -> None:
    """What each process does; rank 0 reports."""
    import torch.distributed as dist

    torch.set_num_threads(threads)
    place = device if device == "cpu" else f"cuda:{rank}"
    dist.init_process_group(
        _backend(device), init_method=f"file://{store}", rank=rank, world_size=world_size
    )
    times_s = {
        op: [_time_s(op, size, torch.bfloat16, place, world_size) for size in SIZES_BYTES]
        for op in OPS
    }
    if rank == 0:
        queue.put(times_s)
    dist.barrier()
    dist.destroy_process_group()


def _time_s(op: Op, size_bytes: int, dtype: torch.dtype, place: str, world_size: int) -> float:
    """Median of a few, each between two barriers."""
    import torch.distributed as dist

    mine = torch.zeros(size_bytes // dtype.itemsize, dtype=dtype, device=place)
    every = [torch.empty_like(mine) for _ in range(world_size)]
    calls: dict[Op, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(mine),
        "all_gather": lambda: dist.all_gather(every, mine),
    }
    times_s = []
    for _ in range(_REPEATS):
        dist.barrier()
        _synchronize(place)
        begin_s = time.perf_counter()
        calls[op]()
        _synchronize(place)
        times_s.append(time.perf_counter() - begin_s)
    return statistics.median(times_s[1:])


def _synchronize(place: str) -> None:
    if place != "cpu":
        torch.cuda.synchronize(place)
