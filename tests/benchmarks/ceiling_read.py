"""Read ceiling against a plain compiled loop and torch.sum, in turn, in the same minute.

    python tests/benchmarks/ceiling_read.py [--mib 512] [--rounds 40] [--threads N]

Passes (exit code 0) where the median over rounds of ours / the better of the two is at least 0.95.
"""

import argparse
import ctypes
import shutil
import statistics
import subprocess
import sys
import tempfile
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
    stopwatch = Stopwatch("cpu")
    meter = ContentionMeter(threads)
    rates: dict[str, list[float]] = {"ours": []}
    with tempfile.TemporaryDirectory() as folder:
        name, loop = _compiled_loop(Path(folder), threads)
        rivals: dict[str, Read] = {name: loop, "torch.sum": torch.sum}
        rates |= {rival: [] for rival in rivals}
        for _ in range(arguments.rounds):
            reading = live.read(0.0)
            rates["ours"].append(reading.read_bytes_per_s)
            for rival, read in rivals.items():
                rates[rival].append(_best_rate(read, stream, stopwatch))
    waited = meter.stop().run_queue_fraction
    print(f"read of {arguments.mib} MiB, {threads} threads, ours: {reading.read_kernel}")
    print(f"  waited for a core: {'unknown' if waited is None else f'{waited:.1%}'}")
    return _report(rates)


def _report(rates: dict[str, list[float]]) -> int:
    for name, values in rates.items():
        print(
            f"  {name:24s} best {max(values) / 1e9:6.1f} GB/s"
            f"   median {statistics.median(values) / 1e9:6.1f} GB/s"
        )
    ours = rates.pop("ours")
    ratios = [own / max(others) for own, *others in zip(ours, *rates.values(), strict=True)]
    ratio = statistics.median(ratios)
    best = max(ours) / max(max(values) for values in rates.values())
    print(f"  ours / better of the two: median of rounds {ratio:.3f}, best / best {best:.3f}")
    return 0 if ratio >= WANTED else 1


def _best_rate(read: Read, stream: Stream, stopwatch: Stopwatch) -> float:
    numel = WINDOW_BYTES // stream.pool.itemsize
    work = min(numel, stream.pool.numel()) * stream.pool.itemsize
    return repeat(
        stopwatch, lambda: read(stream.take(numel)), work, budget_s=PART_S, at_least=2
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
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
