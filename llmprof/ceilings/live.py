"""The ceilings that a run is judged by, read again and again between its rounds."""

import time
from collections.abc import Callable, Sequence

import torch

from llmprof.ceilings.fixed_cost import TinyOps
from llmprof.ceilings.matmul import best_contenders
from llmprof.ceilings.matmul_kernels import float32_precision, matmul_dtypes
from llmprof.ceilings.memory_levels import level_of
from llmprof.ceilings.pool import Stream, random_pool
from llmprof.ceilings.read_kernels import read_kernels
from llmprof.ceilings.read_probe import ReadProbe, read_probes
from llmprof.ceilings.skinny import MakeProduct, SkinnyProbe
from llmprof.ceilings.timing import Call, Stopwatch, Turns, race, stored_rates, take_turns
from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.dtypes import TORCH_DTYPES
from llmprof.engine.linear import Linear, kernel_name
from llmprof.engine.workload import CeilingNeeds
from llmprof.errors import CapabilityError
from llmprof.schema.ceilings import CeilingReading, Ceilings, SkinnyReading
from llmprof.schema.environment import Environment

_READ_S = 0.060
_PART_S = 0.025
"""Time of each part of a reading, its warm-up apart."""
_LEAST_WARM_UP_S = 0.1
_LONGEST_WARM_UP_S = 0.2
_MOST_CALLS = 12
"""Per part: what a run file keeps of a reading."""
_LONGEST_PRODUCT_S = 0.005
_RACE_S = 0.15
_FEWEST_CALLS = 5
_READERS = 2


class LiveCeilings:
    """Read bandwidth at the run's working set, its matmul dtype, its skinny products, and alpha.

    Machines that others share change by the minute, so each round is judged by the readings beside
    it. Memory is taken once, here, and kernels and shapes are sifted; in every reading the best
    of each take turns, so that no choice made in a bad moment lasts for a run. Threads are those
    that torch uses when it reads.
    """

    def __init__(
        self,
        needs: CeilingNeeds,
        environment: Environment,
        device: str | None = None,
        *,
        measured: Ceilings | None = None,
        skinny_formats: Sequence[WeightFormat] = (),
        make_product: MakeProduct = Linear,
        product_name: str | None = None,
        sm_clock_hz: Callable[[], float | None] | None = None,
    ) -> None:
        """Take the memory (up to a quarter of what is free) and choose kernels, in 1 to 2 s.

        `measured` is what was found on this device before: it labels the level of memory, instead of
        sizes alone, and tells how large a matmul a reading can afford. `skinny_formats` say how the weights of each skinny shape are stored; none: as
        floats of the run's dtype. `make_product` and `product_name` are the engine's kernel for
        them. `sm_clock_hz` tells a GPU's clock now. Raises CapabilityError for a dtype without a matmul on this device, or without memory.
        """
        self._device = device or environment.device
        self._needs = needs
        self._formats = tuple(skinny_formats)
        self._product_name = product_name or self._names_of_products()
        self._sm_clock_hz = sm_clock_hz or _no_clock
        _check_dtype(needs, self._device)
        self._stopwatch = Stopwatch(self._device)
        pool_dtype = TORCH_DTYPES.get(needs.compute_dtype, torch.float32)
        self._stream = Stream(random_pool(needs.working_set_bytes, self._device, pool_dtype))
        bandwidth = measured.bandwidth if measured else ()
        self._level = level_of(self._stream.pool.nbytes, environment, bandwidth)
        with torch.inference_mode(), float32_precision(needs.compute_dtype):
            self._readers = self._best_readers()
            self._products = best_contenders(
                needs.compute_dtype,
                self._device,
                self._stopwatch,
                call_s=_LONGEST_PRODUCT_S,
                known_flops_per_s=_known_rate(needs.compute_dtype, measured),
            )
            self._skinny = self._open_skinny(make_product)
            self._alpha = TinyOps() if self._device == "cpu" else None

    def read(self, time_s: float) -> CeilingReading:
        """One reading in 0.1 to 0.3 s; `time_s` is stamped on it (since the start of the run).

        One pass over the pool that is not timed, since a stream of gigabytes gets less of its
        bandwidth in the first 100 ms after other work; then 60 ms of reads, 25 ms each of the two
        kinds of product, and a few of tiny ops. A part takes longer where the first turn of each of its
        rivals does. A disturbed call takes as long as it takes: nobody's turn is left out.

        Each figure is the best of its calls on a CPU, where a disturbance can only slow a call, and
        their median on a GPU.
        """
        start_ns = time.perf_counter_ns()
        with torch.inference_mode(), float32_precision(self._needs.compute_dtype):
            self._pass_over_the_pool()
            reads = self._read_memory()
            matmuls, sm_clock_hz = self._multiply(), self._sm_clock_hz()
            skinny = self._read_skinny()
            alpha_s = None if self._alpha is None else self._alpha.read_s()
        reader, read_bytes_per_s = reads.winner(self._device)
        product, matmul_flops_per_s = matmuls.winner(self._device)
        return CeilingReading(
            time_s=time_s,
            duration_s=(time.perf_counter_ns() - start_ns) / 1e9,
            read_bytes_per_s=read_bytes_per_s,
            read_buffer_bytes=self._stream.pool.nbytes,
            read_level=self._level,
            read_kernel=self._readers[reader].kernel.name,
            matmul_dtype=self._needs.compute_dtype,
            matmul_flops_per_s=matmul_flops_per_s,
            matmul_shape=self._products[product].shape,
            skinny=skinny,
            alpha_s=alpha_s,
            sm_clock_hz=sm_clock_hz or None,
            read_calls_bytes_per_s=reads.stored,
            matmul_calls_flops_per_s=matmuls.stored,
        )

    def _pass_over_the_pool(self) -> None:
        """Steady state of a stream: page tables, clocks and threads are those of reading on."""
        reader, passed_bytes = self._readers[0], 0.0
        begin_s = now_s = time.perf_counter()
        while now_s < begin_s + _LEAST_WARM_UP_S or (
            passed_bytes < self._stream.pool.nbytes and now_s < begin_s + _LONGEST_WARM_UP_S
        ):
            reader()
            passed_bytes += reader.bytes_per_call
            now_s = time.perf_counter()

    def _read_memory(self) -> Turns:
        rivals = [(reader, reader.bytes_per_call) for reader in self._readers]
        turns = self._take_turns(rivals, budget_s=_READ_S)
        _, fastest = turns.winner(self._device)
        for reader in self._readers:
            reader.expect(fastest)
        return turns

    def _multiply(self) -> Turns:
        return self._take_turns([(one, one.flops_per_call) for one in self._products])

    def _take_turns(self, rivals: Sequence[tuple[Call, float]], budget_s: float = _PART_S) -> Turns:
        return take_turns(self._stopwatch, rivals, budget_s=budget_s, most_calls=_MOST_CALLS)

    def _read_skinny(self) -> SkinnyReading | None:
        if self._skinny is None or self._needs.skinny_rows is None:
            return None
        rates = self._skinny.read(_PART_S, most_passes=_MOST_CALLS)
        return SkinnyReading(
            rows=self._needs.skinny_rows,
            dtype=", ".join(self._skinny.formats),
            kernel=self._product_name,
            bytes_per_s=rates.bytes_per_s,
            calls_bytes_per_s=stored_rates(rates.passes_bytes_per_s),
        )

    def _best_readers(self) -> list[ReadProbe]:
        """Those whose ceilings are highest, from five calls each at least."""
        kernels = read_kernels(self._device)
        probes = read_probes(kernels, self._stream, self._stopwatch)
        work = next(iter(probes.values())).bytes_per_call
        rates = race(self._stopwatch, probes, work, budget_s=_RACE_S, at_least=_FEWEST_CALLS)
        ranked = sorted(rates, key=lambda name: -rates[name].ceiling(self._device))
        return [probes[name] for name in ranked[:_READERS]]

    def _open_skinny(self, make_product: MakeProduct) -> SkinnyProbe | None:
        if self._needs.skinny_rows is None or not self._needs.skinny_shapes:
            return None
        return SkinnyProbe(
            self._needs.skinny_shapes,
            self._needs.skinny_rows,
            self._stream,
            self._stopwatch,
            working_set_bytes=self._needs.working_set_bytes,
            formats=self._formats,
            make_product=make_product,
        )

    def _names_of_products(self) -> str:
        rows = self._needs.skinny_rows or 1
        names = [kernel_name(rows, self._device, weights) for weights in self._formats]
        return "; ".join(dict.fromkeys(names)) or kernel_name(rows, self._device)


def _no_clock() -> float | None:
    return None


def _known_rate(dtype: str, measured: Ceilings | None) -> float:
    """FLOP/s that this device reached once; 0 where that was not measured."""
    compute = measured.compute if measured else ()
    return max((one.flops_per_s for one in compute if one.dtype == dtype), default=0.0)


def _check_dtype(needs: CeilingNeeds, device: str) -> None:
    known = matmul_dtypes(device)
    skinny = needs.skinny_rows is not None and needs.skinny_shapes
    if needs.compute_dtype in known and (needs.compute_dtype in TORCH_DTYPES or not skinny):
        return
    raise CapabilityError(
        f"no live ceiling for matmuls in {needs.compute_dtype} on {device}",
        remedy=f"Compute in one of {', '.join(name for name in known if name in TORCH_DTYPES)}",
    )
