"""How short a window of GPM may be, and whether this user may read it at all."""

import os
from typing import Any, Final

from scripts.gpu.job import Job

_WINDOWS_S: Final = (0.05, 0.1, 0.2, 0.25, 0.5, 1.0)
_POOL_BYTES: Final = 4 << 30


def try_windows(job: Job) -> None:
    """DRAM activity of our read kernel over windows of growing length: it should not depend on it."""
    import torch

    from llmprof.ceilings.pool import Stream, random_pool
    from llmprof.ceilings.read_kernels import read_kernels
    from llmprof.ceilings.read_probe import read_probes
    from llmprof.ceilings.timing import Stopwatch
    from llmprof.instruments.gpm import GpmSampler, calibrate
    from llmprof.instruments.gpu_info import gpu_info
    from llmprof.instruments.nvml import NvmlUnavailable, open_nvml

    session = open_nvml(gpu_info(job.device).uuid)
    if isinstance(session, NvmlUnavailable):
        job.found("gpm", {"not_measured": session.reason})
        return
    telemetry = session.read()
    found: dict[str, Any] = {"user": os.geteuid(), "nvml_missing": dict(telemetry.missing)}
    if not isinstance(session.gpm, GpmSampler):
        job.found("gpm", {**found, "not_measured": session.gpm.reason})
        return
    stream = Stream(random_pool(_POOL_BYTES, job.device, torch.float32))
    kernels = read_kernels(job.device)
    read = next(iter(read_probes(kernels, stream, Stopwatch(job.device)).values()))
    session.gpm.least_window_s = 0.0
    windows = {
        f"{seconds:g}": calibrate(
            session.gpm, read, lambda: torch.cuda.synchronize(job.device), seconds=seconds
        )
        for seconds in _WINDOWS_S
    }
    session.start()
    read()
    torch.cuda.synchronize(job.device)
    again = session.read()
    found["why_none"] = again.missing.get("dram_activity")
    found["memory_query_after_gpm"] = again.missing.get("memory_used_bytes", "works")
    job.found("gpm", {**found, "dram_activity_by_window_s": windows})
    session.close()
