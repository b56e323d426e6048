"""Checks of what is installed: torch, numba, a compiler, the demo model."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from llmprof.architectures.installed_model import INSTALLED_MODEL, installed_model_file
from llmprof.errors import InputError
from llmprof.instruments.checks.outcome import missing, ok, warn
from llmprof.instruments.libraries import TorchBuild
from llmprof.schema.diagnosis import Check

_TORCH_OLDEST = (2, 11)
_TORCH_NEWEST = (2, 14)
_TORCH_PAGE = "https://pytorch.org/get-started/locally"
_COMPILERS = ("gcc", "clang")


@dataclass(frozen=True, slots=True)
class TorchRuntime:
    """What came of importing torch."""

    import_error: str | None
    cuda_devices: int = 0


def torch_runtime() -> TorchRuntime:
    """Import torch and count the CUDA devices that it can use."""
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a shared library of the wheel is missing
        return TorchRuntime((str(error) or type(error).__name__).splitlines()[0])
    return TorchRuntime(None, torch.cuda.device_count() if torch.cuda.is_available() else 0)


def check_torch(build: TorchBuild | None, runtime: TorchRuntime) -> Check:
    name = "torch"
    if build is None:
        return missing(
            name, "not installed: nothing can be measured", f"Install it as {_TORCH_PAGE} says"
        )
    if runtime.import_error is not None:
        return missing(
            name,
            f"{build.version} is installed but cannot be imported: {runtime.import_error}",
            "Install torch again for this Python",
        )
    detail = f"{build.version}, " + (f"for CUDA {build.cuda}" if build.cuda else "a CPU build")
    version = _major_minor(build.version)
    if version is None or not _TORCH_OLDEST <= version <= _TORCH_NEWEST:
        return warn(
            name,
            f"{detail}; llmprof is tested with 2.11 to 2.14",
            "Install one of these versions of torch",
        )
    return ok(name, detail)


def check_numba(versions: Mapping[str, str]) -> Check:
    if "numba" in versions:
        return ok("numba", f"{versions['numba']}, for kernels and the clock canary")
    return missing(
        "numba",
        "not installed: no read ceiling and no clock canary on a CPU",
        "Install it with: pip install numba",
    )


def check_compiler(*, on_gpu: bool, variables: Mapping[str, str] = os.environ) -> Check:
    """The C compiler that Triton would call: CC where it is set, else the usual names."""
    name, chosen = "C compiler", variables.get("CC")
    for command in (chosen,) if chosen else _COMPILERS:
        if shutil.which(command):
            return ok(name, f"{command}, for Triton's kernels and torch.compile on a GPU")
    absent = f"CC names {chosen}, which is not found" if chosen else "none found"
    if not on_gpu:
        return ok(name, f"{absent}, and a CPU needs none")
    return missing(
        name,
        f"{absent}: no Triton kernel can be built, so packed weights and execution.mode=compiled are "
        "refused on a GPU",
        "Install gcc, for example with: apt-get install gcc",
    )


def check_demo_model() -> Check:
    try:
        installed_model_file()
    except InputError as error:
        return missing("demo model", error.message, error.remedy)
    return ok("demo model", f"{INSTALLED_MODEL} is installed")


def _major_minor(version: str) -> tuple[int, int] | None:
    parts = version.split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return int(parts[0]), int(parts[1])
