"""The zoo: workloads whose bound is known by construction, their sizes drawn by a seed."""

from collections.abc import Callable
from dataclasses import dataclass

from llmprof.schema.verdict import Limit, Saturation
from tests.zoo.bench import Bench
from tests.zoo.pieces import Piece, host_sleep, multiply, read, tiny_ops
from tests.zoo.truth import Truth
from tests.zoo.workload import PlantedWorkload

_CALIBRATION_STEPS = 12
_DTYPE = "bf16"
_DOMINANT = 0.60
_SHORT_STEPS = 60
"""Of a round of steps of a millisecond or two: what the readings left in the caches is soon forgotten."""
_NO_GAIN = 1.5
"""A dtype of half the width that multiplies less than so many times as fast has no fast path."""


class NotHere(Exception):  # noqa: N818 (an answer, not an error)
    """This machine cannot show the case; the message says why."""


@dataclass(frozen=True, slots=True)
class Case:
    workload: PlantedWorkload
    truth: Callable[[], Truth]
    """Asked after the measurement: shares of a mixture are timed before and after it."""


def far_reads(bench: Bench) -> Case:
    kernel = bench.kernels[bench.random.randrange(2 if bench.device == "cpu" else 1)]
    piece = read(kernel, bench.stream, _bytes_for(bench, bench.random.uniform(0.012, 0.030)))
    truth = Truth("memory, saturated", Limit.MEMORY, saturation=Saturation.SATURATED)
    return Case(bench.workload([piece]), lambda: truth)


def large_matmul(bench: Bench) -> Case:
    piece = _products(bench, bench.random.uniform(0.012, 0.030))
    truth = Truth("compute, saturated", Limit.COMPUTE, saturation=Saturation.SATURATED)
    return Case(bench.workload([piece]), lambda: truth)


def even_mixture(bench: Bench) -> Case:
    return _mixture(bench, memory_share=bench.random.uniform(0.46, 0.54))


def mixture_30_memory(bench: Bench) -> Case:
    return _mixture(bench, memory_share=bench.random.uniform(0.27, 0.33))


def mixture_30_compute(bench: Bench) -> Case:
    return _mixture(bench, memory_share=bench.random.uniform(0.67, 0.73))


def small_ops(bench: Bench) -> Case:
    """On a GPU hundreds of tiny kernels take the host longer to start than the device to run."""
    piece = tiny_ops(bench.random.randrange(300, 900), bench.device)
    limit = Limit.FIXED_COST if bench.device == "cpu" else Limit.HOST
    truth = Truth(limit.value.replace("_", " "), limit)
    workload = bench.workload([piece], working_set_bytes=1 << 20, steps=_SHORT_STEPS)
    return Case(workload, lambda: truth)


def sleep_sticking_out(bench: Bench) -> Case:
    """On a CPU a sleep adds to the step; on a GPU what goes beyond the device's time does."""
    work_s = bench.random.uniform(0.003, 0.005)
    sleep_s = work_s * bench.random.uniform(2.5, 4.0)
    piece = read(bench.kernels[0], bench.stream, _bytes_for(bench, work_s))
    workload = bench.workload([host_sleep(sleep_s), piece])
    before = workload.pieces_s(_CALIBRATION_STEPS)

    def truth() -> Truth:
        times_s = _mean(before, workload.pieces_s(_CALIBRATION_STEPS))
        step_s = sum(times_s.values()) if bench.device == "cpu" else times_s["sleep"]
        hidden_s = 0.0 if bench.device == "cpu" else times_s["read"]
        share = (times_s["sleep"] - hidden_s) / step_s
        shares = {Limit.HOST: share, Limit.MEMORY: 1 - share}
        return Truth(f"{share:.0%} host", _by_definition(shares), shares=shares)

    return Case(workload, truth)


def sleep_hidden(bench: Bench) -> Case:
    if bench.device == "cpu":
        raise NotHere("nothing hides host time on a CPU: the host itself does the work")
    work_s = bench.random.uniform(0.015, 0.030)
    piece = read(bench.kernels[0], bench.stream, _bytes_for(bench, work_s))
    sleep = host_sleep(work_s * bench.random.uniform(0.3, 0.6))
    truth = Truth("memory, saturated", Limit.MEMORY, saturation=Saturation.SATURATED)
    return Case(bench.workload([piece, sleep]), lambda: truth)


def cache_resident(bench: Bench) -> Case:
    """The same few hundred KiB again and again, in a cache that belongs to the run's cores alone."""
    caches = [one for one in bench.environment.cpu.caches if one.level == 2]
    if bench.device != "cpu" or not caches:
        raise NotHere("the size of the cache next to the cores is not known")
    cores = -(-bench.threads // caches[0].shared_by)
    size = int(caches[0].size_bytes * cores * bench.random.uniform(0.25, 0.5)) >> 12 << 12
    kernel = next(one for one in bench.kernels if one.in_one_launch)
    passes = int(0.5e9 * bench.random.uniform(1.0, 2.0) / size)
    piece = read(kernel, bench.stream, size, passes=passes)
    truth = Truth(
        "memory in cache, saturated",
        Limit.MEMORY,
        saturation=Saturation.SATURATED,
        level="L2",
        caveats=("cache-resident",),
    )
    workload = bench.workload([piece], working_set_bytes=size, steps=_SHORT_STEPS)
    return Case(workload, lambda: truth)


def one_thread(bench: Bench) -> Case:
    """A kernel on one of several cores reaches one part in so many of the roof of all of them."""
    if bench.device != "cpu" or bench.threads < 2:
        raise NotHere("one thread is all that there is")
    piece = _products(bench, bench.random.uniform(0.010, 0.020) / bench.threads)
    truth = Truth("compute, kernel-limited", Limit.COMPUTE, saturation=Saturation.KERNEL_LIMITED)
    return Case(bench.workload([piece], threads_inside=1), lambda: truth)


def no_fast_path(bench: Bench) -> Case:
    wide = bench.flops_per_s("fp32")
    rates = {dtype: bench.flops_per_s(dtype) for dtype in ("bf16", "fp16")}
    slow = [dtype for dtype, rate in rates.items() if rate and wide and rate < _NO_GAIN * wide]
    if not slow:
        raise NotHere("every dtype that torch multiplies here has a fast path")
    dtype = bench.random.choice(slow)
    piece = _products(bench, bench.random.uniform(0.020, 0.040), dtype=dtype)
    truth = Truth(
        f"compute, saturated, {dtype} named as slow",
        Limit.COMPUTE,
        saturation=Saturation.SATURATED,
        caveats=("dtype-without-fast-path",),
    )
    return Case(bench.workload([piece], compute_dtype=dtype), lambda: truth)


CASES: dict[str, Callable[[Bench], Case]] = {
    "reads far beyond the cache": far_reads,
    "large matmul": large_matmul,
    "half memory, half compute": even_mixture,
    "30 memory, 70 compute": mixture_30_memory,
    "70 memory, 30 compute": mixture_30_compute,
    "hundreds of tiny ops": small_ops,
    "host sleep sticking out": sleep_sticking_out,
    "host sleep hidden": sleep_hidden,
    "cache-resident weights": cache_resident,
    "single-threaded kernel": one_thread,
    "dtype without a fast path": no_fast_path,
}


def _mixture(bench: Bench, *, memory_share: float) -> Case:
    """Sized by the ceilings, then by a first timing; true are the shares timed around the run."""
    step_s = bench.random.uniform(0.035, 0.055)
    sized = _sized_mixture(bench, memory_share * step_s, (1 - memory_share) * step_s)
    first = sized.pieces_s(_CALIBRATION_STEPS)
    scale_read = memory_share * step_s / first["read"]
    scale_multiply = (1 - memory_share) * step_s / first["multiply"]
    workload = _sized_mixture(
        bench, memory_share * step_s * scale_read, (1 - memory_share) * step_s * scale_multiply
    )
    before = workload.pieces_s(_CALIBRATION_STEPS)

    def truth() -> Truth:
        times_s = _mean(before, workload.pieces_s(_CALIBRATION_STEPS))
        memory = times_s["read"] / sum(times_s.values())
        shares = {Limit.MEMORY: memory, Limit.COMPUTE: 1 - memory}
        words = f"{memory:.0%} memory, {1 - memory:.0%} compute"
        return Truth(words, _by_definition(shares), shares=shares)

    return Case(workload, truth)


def _by_definition(shares: dict[Limit, float]) -> Limit:
    """A mixture is what no part has 60 % of (the definition of the ledger, not a measured threshold)."""
    largest = max(shares, key=lambda limit: shares[limit])
    return largest if shares[largest] >= _DOMINANT else Limit.MIXTURE


def _sized_mixture(bench: Bench, read_s: float, multiply_s: float) -> PlantedWorkload:
    reads = read(bench.kernels[0], bench.stream, _bytes_for(bench, read_s))
    return bench.workload([reads, _products(bench, multiply_s)])


def _products(bench: Bench, seconds: float, dtype: str = _DTYPE) -> Piece:
    """Products of the shape that reached the ceiling once, for about so long."""
    rate = bench.flops_per_s(dtype)
    if rate is None:
        raise NotHere(f"torch does not multiply {dtype} here")
    m, n, k = bench.shape_of(dtype)
    calls = max(2, round(seconds * rate / (2.0 * m * n * k)))
    return multiply(dtype, bench.device, (m, n, k), calls)


def _bytes_for(bench: Bench, seconds: float) -> int:
    """What a stream reads in about so long: at most all of it, so that nothing is met twice."""
    return min(int(seconds * bench.read_bytes_per_s), bench.far_bytes) >> 12 << 12


def _mean(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: (before[name] + after[name]) / 2 for name in before}
