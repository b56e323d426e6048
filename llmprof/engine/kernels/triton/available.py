"""Whether Triton kernels can run on a GPU, asked before triton is imported."""

import contextlib
import functools
import importlib.util
import subprocess
import sys

import torch


def runs_triton(device: str) -> bool:
    """Whether kernels of this package run on `cpu` or `cuda:N`; on a CPU never."""
    return torch.device(device).type == "cuda" and triton_trouble(device) is None


@functools.cache
def triton_trouble(device: str) -> str | None:
    """Why no Triton kernel can run on `cuda:N`, as the end of a sentence; None where one did run."""
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    try:
        from triton.errors import TritonError
    except (ImportError, OSError) as error:
        return f"triton cannot be imported ({_first_line(error)})"
    from llmprof.engine.kernels.triton.add_splits import add_splits

    try:
        # Triton prints the assembly that ptxas refuses, and stdout is the result
        with contextlib.redirect_stdout(sys.stderr):
            add_splits(torch.zeros(1, 1, 1, device=device), None, torch.float32)
    except (
        *(RuntimeError, OSError, ImportError, subprocess.SubprocessError),
        TritonError,  # a GPU that is newer than this triton's ptxas: no RuntimeError
    ) as error:
        return f"triton cannot build kernels here ({_first_line(error)})"
    return None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0]
