"""What this machine can measure, and what to fix: the checks of `llmprof doctor`."""

from collections.abc import Iterator

from llmprof.errors import CapabilityError
from llmprof.instruments.checks import gpu, machine, matmul, quiet, software
from llmprof.instruments.libraries import torch_build
from llmprof.instruments.snapshot import resolve_threads, snapshot
from llmprof.schema.diagnosis import Check, Diagnosis
from llmprof.schema.environment import Environment


def diagnose() -> Diagnosis:
    """Look at the whole machine in a few seconds. Never fails because something is missing."""
    build = torch_build()
    runtime = software.torch_runtime()
    seen = gpu.gpus_seen()
    environment = _environment(has_cuda=runtime.cuda_devices > 0)

    def checks() -> Iterator[Check | None]:
        yield software.check_torch(build, runtime)
        yield gpu.check_cuda(build, runtime, seen)
        yield gpu.check_nvml(environment, seen)
        yield gpu.check_gpm(environment)
        yield gpu.check_profiling_permission()
        yield machine.check_cores(environment)
        yield machine.check_memory(environment)
        yield machine.check_governor(environment)
        yield machine.check_openmp(environment)
        yield quiet.check_quiet(environment.cpu.usable_cores)
        yield quiet.check_clock_under_load(environment.cpu.usable_cores)
        yield matmul.check_matmul(environment) if runtime.import_error is None else None
        yield machine.check_counters(environment)
        yield software.check_numba(environment.versions)
        yield software.check_compiler(on_gpu=runtime.cuda_devices > 0)
        yield software.check_demo_model()

    found = tuple(check for check in checks() if check is not None)
    return Diagnosis(environment=environment, checks=found)


def _environment(*, has_cuda: bool) -> Environment:
    """Of the device that a run would choose by itself."""
    threads = resolve_threads(None)
    if has_cuda:
        try:
            return snapshot("cuda:0", threads)
        except CapabilityError:
            pass  # torch lists a device that it cannot describe: `check_nvml` says so
    return snapshot("cpu", threads)
