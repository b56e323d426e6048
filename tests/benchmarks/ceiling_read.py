"""Read ceiling against a plain compiled loop and torch.sum, in turn, in the same minute.

    python tests/benchmarks/ceiling_read.py [--mib 512] [--rounds 20] [--threads N] [--limit-s 120]

A round is one live reading and 20 ms of each rival. Rounds in which other processes kept this one
waiting for a core for more than 5 % of the time are dropped. Passes (exit code 0) where the median
over rounds of ours / the better of the two is at least 0.95; 3 where too few rounds were quiet.
"""

import argparse
import ctypes
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import torch

from llmprof.ceilings.live import LiveCeilings
from llmprof.ceilings.pool import Stream, random_pool
from llmprof.ceilings.timing import Stopwatch, repeat
from llmprof.engine.workload import CeilingNeeds
from llmprof.instruments.contention import ContentionMeter
from llmprof.instruments.snapshot import resolve_threads, snapshot

WANTED = 0.95
WINDOW_BYTES = 96 << 20
PART_S = 0.020
MOST_WAITING = 0.05
EXIT_INCONCLUSIVE = 3
LOOP = """
#include <stdint.h>
#include <stddef.h>
int64_t read_all(const int64_t *words, size_t n) {
    int64_t sum = 0;
    #pragma omp parallel for reduction(+ : sum) schedule(static)
    for (size_t i = 0; i < n; i++) sum += words[i];
    return sum;
}
"""

Read = Callable[[torch.Tensor], object]


def main() -> int:
    arguments = _arguments()
    threads = resolve_threads(arguments.threads)
    torch.set_num_threads(threads)
    size = arguments.mib << 20
    live = LiveCeilings(CeilingNeeds(size, "bf16", None, ()), snapshot("cpu", threads))
    stream = Stream(random_pool(size, "cpu", torch.float32))
    meter = ContentionMeter(threads)
    rounds: list[dict[str, float]] = []
    dropped = 0
    deadline = time.perf_counter() + arguments.limit_s
    with tempfile.TemporaryDirectory() as folder:
        name, loop = _compiled_loop(Path(folder), threads)
        rivals: dict[str, Read] = {name: loop, "torch.sum": torch.sum}
        while len(rounds) < arguments.rounds and time.perf_counter() < deadline:
            meter.start()
            reading = live.read(0.0)
            rates = {"ours": reading.read_bytes_per_s}
            rates |= {rival: _best_rate(read, stream) for rival, read in rivals.items()}
            if (meter.stop().run_queue_fraction or 0.0) > MOST_WAITING:
                dropped += 1
            else:
                rounds.append(rates)
    print(f"read of {arguments.mib} MiB, {threads} threads, ours: {reading.read_kernel}")
    print(f"  {len(rounds)} quiet rounds, {dropped} dropped")
    return _report(rounds) if len(rounds) >= arguments.rounds else EXIT_INCONCLUSIVE


def _report(rounds: list[dict[str, float]]) -> int:
    for name in rounds[0]:
        values = [rates[name] / 1e9 for rates in rounds]
        print(
            f"  {name:24s} best {max(values):6.1f}   median {statistics.median(values):6.1f} GB/s"
        )
    ours, *others = zip(*(rates.values() for rates in rounds), strict=True)
    rivals = [max(rates) for rates in zip(*others, strict=True)]
    ratio = statistics.median(own / rival for own, rival in zip(ours, rivals, strict=True))
    print(
        f"  ours / better of the two: median of rounds {ratio:.3f}, best / best {max(ours) / max(rivals):.3f}"
    )
    return 0 if ratio >= WANTED else 1


def _best_rate(read: Read, stream: Stream) -> float:
    numel = WINDOW_BYTES // stream.pool.itemsize
    work = min(numel, stream.pool.numel()) * stream.pool.itemsize
    return repeat(
        Stopwatch("cpu"), lambda: read(stream.take(numel)), work, budget_s=PART_S, at_least=2
    ).best


def _compiled_loop(folder: Path, threads: int) -> tuple[str, Read]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return "plain numba loop", _numba_loop()
    source, library = folder / "loop.c", folder / "loop.so"
    source.write_text(LOOP)
    flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.omp_set_num_threads(threads)
    read_all = loaded.read_all
    read_all.restype, read_all.argtypes = ctypes.c_int64, [ctypes.c_void_p, ctypes.c_size_t]
    return "C loop (-O3, OpenMP)", lambda data: read_all(data.data_ptr(), data.nbytes // 8)


def _numba_loop() -> Read:
    def total(words: np.ndarray) -> int:
        result = 0
        for i in numba.prange(words.size):
            result += words[i]
        return result

    compiled = numba.njit(parallel=True)(total)
    return lambda data: compiled(data.view(torch.int64).numpy())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--limit-s", type=float, default=120)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
