"""Checks of NVIDIA GPUs: can torch use one, can its sensors and counters be read."""

from dataclasses import dataclass
from pathlib import Path

from llmprof.instruments.checks.nvml_remedy import nvml_remedy
from llmprof.instruments.checks.outcome import missing, ok, warn
from llmprof.instruments.checks.software import TorchRuntime
from llmprof.instruments.gpm import GpmUnavailable
from llmprof.instruments.libraries import TorchBuild
from llmprof.instruments.nvml import NvmlUnavailable, gpu_names, load_nvml, open_nvml
from llmprof.instruments.system_file import read_text
from llmprof.schema.diagnosis import Check
from llmprof.schema.environment import Environment

_DRIVER_VERSION = "proc/driver/nvidia/version"
_DRIVER_PARAMETERS = "proc/driver/nvidia/params"


@dataclass(frozen=True, slots=True)
class GpusSeen:
    """What stands beside torch's own view."""

    names: tuple[str, ...]
    """By NVML, whatever CUDA_VISIBLE_DEVICES says."""
    nvml_reason: str | None
    """Why NVML tells nothing; None where it does."""
    driver_loaded: bool
    """The kernel driver is there, though NVML may not be."""


def gpus_seen(root: Path = Path("/")) -> GpusSeen:
    driver_loaded = read_text(root / _DRIVER_VERSION) is not None
    library = load_nvml()
    names = library if isinstance(library, NvmlUnavailable) else gpu_names(library)
    if isinstance(names, NvmlUnavailable):
        return GpusSeen((), names.reason, driver_loaded)
    return GpusSeen(names, None, driver_loaded)


def check_cuda(build: TorchBuild | None, runtime: TorchRuntime, seen: GpusSeen) -> Check:
    """Whether torch can use a GPU, and if not, which of torch, driver or variable is the cause."""
    name = "CUDA"
    if runtime.cuda_devices:
        usable = "1 GPU" if runtime.cuda_devices == 1 else f"{runtime.cuda_devices} GPUs"
        return ok(name, f"torch can use {usable}")
    if not seen.names and not seen.driver_loaded:
        return ok(name, "no NVIDIA GPU here: llmprof measures the CPU")
    what = ", ".join(seen.names) or "an NVIDIA driver"
    if build is None:
        return missing(name, f"{what} is here, but torch is not installed", "Install torch")
    if build.cuda is None:
        return missing(
            name,
            f"{what} is here, but torch {build.version} is a CPU build",
            "Install the CUDA build of torch as https://pytorch.org/get-started/locally says",
        )
    return missing(
        name,
        f"{what} is here, but torch for CUDA {build.cuda} can use no GPU",
        "Check CUDA_VISIBLE_DEVICES, and that the driver is new enough for this CUDA version",
    )


def check_nvml(environment: Environment, seen: GpusSeen) -> Check | None:
    """Sensors of the GPU that a run would use; None where there is no GPU at all."""
    name = "GPU sensors"
    if not seen.names and not seen.driver_loaded:
        return None
    if environment.gpu is None or seen.nvml_reason is not None:
        reason = seen.nvml_reason or "no GPU that torch can use"
        return missing(name, f"no clocks, power or temperature: {reason}", nvml_remedy([reason]))
    session = open_nvml(environment.gpu.uuid, holds_context=False)
    if isinstance(session, NvmlUnavailable):
        return missing(name, session.reason, nvml_remedy([session.reason]))
    telemetry = session.read()
    session.close()
    others = telemetry.foreign_processes
    if others:
        return warn(
            name,
            f"{others} other {'process computes' if others == 1 else 'processes compute'} on this GPU",
            "Stop them: a shared GPU gives no valid measurement",
        )
    if telemetry.missing:
        fields = ", ".join(f"{field} ({why})" for field, why in telemetry.missing.items())
        return warn(name, f"not readable here: {fields}", nvml_remedy(telemetry.missing.values()))
    return ok(name, "clocks, power, temperature, memory and processes are readable")


def check_gpm(environment: Environment) -> Check | None:
    """Whether DRAM and tensor activity can be read while a run is measured; None without a GPU."""
    name = "GPU activity"
    if environment.gpu is None:
        return None
    session = open_nvml(environment.gpu.uuid, holds_context=False)
    if isinstance(session, NvmlUnavailable):
        return missing(name, session.reason, nvml_remedy([session.reason]))
    gpm = session.gpm
    session.close()
    if isinstance(gpm, GpmUnavailable):
        return missing(
            name,
            f"DRAM, tensor and SM activity are not readable: {gpm.reason}",
            "Count bytes with ncu and `llmprof ncu` instead",
        )
    return ok(name, "DRAM, tensor and SM activity are readable (GPM)")


def check_profiling_permission(root: Path = Path("/")) -> Check | None:
    """Whether the driver lets users read hardware counters; None without an NVIDIA driver."""
    name = "GPU counters"
    parameters = read_text(root / _DRIVER_PARAMETERS)
    if parameters is None:
        return None
    if "RmProfilingAdminOnly: 1" in parameters:
        return warn(
            name,
            "the driver lets only administrators read them (RmProfilingAdminOnly: 1)",
            "Load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0",
        )
    return ok(name, "the driver lets users read them")
