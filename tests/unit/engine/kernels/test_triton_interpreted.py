"""Kernels for GPUs in Triton's interpreter, which a process has to choose before it imports triton."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[4]


@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="triton is not installed")
def test_kernels_agree_with_torch_in_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/interpreted"]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert passed is not None
    assert int(passed[1]) >= 60
