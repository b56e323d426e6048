"""What our own read kernel shows on the DRAM counter: the full scale of that counter here."""

from typing import Final

import torch

from llmprof.ceilings.pool import Stream, random_pool
from llmprof.ceilings.read_kernels import read_kernels
from llmprof.ceilings.read_probe import read_probes
from llmprof.ceilings.timing import Stopwatch
from llmprof.ceilings.working_set import working_set_bytes
from llmprof.instruments.gpm import GpmSampler, calibrate
from llmprof.instruments.nvml import NvmlSession, open_nvml
from llmprof.schema.ceilings import GpmCalibration
from llmprof.schema.environment import Environment

_LEAST_S: Final = 0.6
"""Five refreshes of the counter, so that its edges matter little."""


def measure_gpm(
    environment: Environment, device: str, *, budget_s: float
) -> tuple[GpmCalibration, ...]:
    """DRAM activity under the read kernel; empty where the device has no such counter to read."""
    gpu = environment.gpu
    session = open_nvml(gpu.uuid) if gpu is not None else None
    if not isinstance(session, NvmlSession) or not isinstance(session.gpm, GpmSampler):
        return ()
    stream = Stream(random_pool(working_set_bytes(environment, device), device, torch.float32))
    probe = next(iter(read_probes(read_kernels(device), stream, Stopwatch(device)).values()))
    seconds = max(_LEAST_S, budget_s)
    activity = calibrate(
        session.gpm, probe, lambda: torch.cuda.synchronize(device), seconds=seconds
    )
    session.close()
    if activity is None:
        return ()
    return (GpmCalibration(dram_activity=activity, measured_s=seconds, kernel=probe.kernel.name),)
