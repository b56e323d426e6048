"""The GPU tests in several processes, and the kernels of the cells compiled beside them.

A test of a kernel is a second of compiling and a millisecond of a GPU: one process after the other would
need minutes for what the cores of the machine do at once. What times the GPU has it alone, at the end.

python -m scripts.gpu.side_by_side NUMBER OF DEVICE MODEL FOLDER
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from scripts.gpu.job import Job
from scripts.gpu.lost_device import LOST
from scripts.gpu.outcomes_of_tests import TestOutcomes

_MOST_PROCESSES: Final = 6
_TIMED: Final = "tests/gpu/test_instruments_on_cuda.py"
_WORDS: Final = ("-v", "--tb=short", "-m", "gpu", "-p", "no:cacheprovider")
_NONE_COLLECTED: Final = 5
"""Exit status of pytest where a process has no test."""


def run_tests(job: Job) -> int:
    """The worst exit status of pytest. Compiling is ended with the time of the part, if it is not over.

    Without a GPU there is nothing to share out: every test is skipped.
    """
    if not job.on_gpu:
        return run_share(job, "tests", ("tests/gpu",))
    of = processes(os.cpu_count() or 1)
    # torch.compile would start as many processes as there are cores, for each of ours
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")
    compiling = [_started(job, "compile_ahead", n, of, *_gpu_of(job)) for n in range(of)]
    testing = [_started(job, "side_by_side", n, of, job.device) for n in range(of)]
    statuses = [one.wait() for one in testing]
    statuses.append(run_share(job, "tests-alone", (_TIMED,)))
    for one in compiling:
        with suppress(subprocess.TimeoutExpired):
            one.wait(timeout=max(0.1, job.left_s))
        one.kill()
    return max(0 if status == _NONE_COLLECTED else abs(status) for status in statuses)


def processes(cores: int) -> int:
    """That test, and as many more that compile."""
    return max(1, min(_MOST_PROCESSES, cores // 2))


def run_share(job: Job, name: str, words: Sequence[str], *, number: int = 0, of: int = 1) -> int:
    """Every `of`-th test, in this process; `words` for pytest. Its exit status."""
    import pytest

    # those that the machine has may want another version of pytest, and none is needed
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    outcomes = TestOutcomes(job, name, number=number, of=of)
    return int(pytest.main([*_WORDS, *words], plugins=[outcomes]))


def _started(
    job: Job, module: str, number: int, of: int, *words: object
) -> "subprocess.Popen[bytes]":
    """In the process group of this part, so that it ends with it at the latest."""
    command = [sys.executable, "-m", f"scripts.gpu.{module}", number, of, *words]
    command += [job.model, job.folder]
    log = job.folder / "logs" / f"{module}-{number}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        return subprocess.Popen([str(word) for word in command], stdout=file, stderr=file)


def _gpu_of(job: Job) -> tuple[int, int]:
    """Compute capability, as 90, and multiprocessors."""
    import torch

    properties = torch.cuda.get_device_properties(job.device)
    return 10 * properties.major + properties.minor, properties.multi_processor_count


def main(words: Sequence[str]) -> int:
    number, of, device, model, folder = words
    job = Job(device, model, Path(folder), 3600.0, time.perf_counter())
    others = "tests/gpu", "--ignore", _TIMED
    status = run_share(job, f"tests-{number}", others, number=int(number), of=int(of))
    if status == LOST:
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "scripts.gpu.side_by_side", *words])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
