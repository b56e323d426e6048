"""The ceilings that a run is judged by, read again and again between its rounds."""

import time

import torch

from llmprof.ceilings.matmul import Contender, best_contenders, race_contenders
from llmprof.ceilings.matmul_kernels import float32_precision, matmul_dtypes
from llmprof.ceilings.memory_levels import level_of
from llmprof.ceilings.pool import Stream, random_pool
from llmprof.ceilings.read_kernels import read_kernels
from llmprof.ceilings.read_probe import ReadProbe, read_probes
from llmprof.ceilings.skinny import MakeProduct, SkinnyProbe
from llmprof.ceilings.timing import Stopwatch, race, repeat
from llmprof.engine.dtypes import TORCH_DTYPES
from llmprof.engine.linear import Linear, kernel_name
from llmprof.engine.workload import CeilingNeeds
from llmprof.errors import CapabilityError
from llmprof.schema.ceilings import CeilingReading, Ceilings, SkinnyReading
from llmprof.schema.environment import Environment

_PART_S = 0.020
"""Time of each of the three parts of a reading."""
_FEWEST_CALLS = 2
_SWEEP_S = 0.4
_RACE_S = 0.15


class LiveCeilings:
    """Read bandwidth at the run's working set, its matmul dtype and its skinny products.

    Machines that others share change by the minute, so each round is judged by the readings beside
    it. Memory, kernels and shapes are chosen once, here; a reading only repeats them. Threads are
    those that torch uses when it reads.
    """

    def __init__(
        self,
        needs: CeilingNeeds,
        environment: Environment,
        device: str | None = None,
        *,
        measured: Ceilings | None = None,
        make_product: MakeProduct = Linear,
        product_name: str | None = None,
    ) -> None:
        """Take the memory (up to a quarter of what is free) and choose kernels, in 1 to 2 s.

        `measured` labels the level of memory by what was found on this device before, instead of by
        sizes alone. `make_product` and `product_name` are the engine's kernel for skinny products.
        Raises CapabilityError for a dtype without a matmul on this device, or without memory.
        """
        self._device = device or environment.device
        self._needs = needs
        self._product_name = product_name or kernel_name(needs.skinny_rows or 1, self._device)
        _check_dtype(needs, self._device)
        self._stopwatch = Stopwatch(self._device)
        pool_dtype = TORCH_DTYPES.get(needs.compute_dtype, torch.float32)
        self._stream = Stream(random_pool(needs.working_set_bytes, self._device, pool_dtype))
        bandwidth = measured.bandwidth if measured else ()
        self._level = level_of(self._stream.pool.nbytes, environment, bandwidth)
        with torch.inference_mode(), float32_precision(needs.compute_dtype):
            self._reader = self._choose_reader(environment.threads)
            self._product = self._choose_matmul()
            self._skinny = self._open_skinny(make_product)

    def read(self, time_s: float) -> CeilingReading:
        """One reading in about 60 ms; `time_s` is stamped on it (since the start of the run).

        Each figure is the best of its calls on a CPU, where a disturbance can only slow a call, and
        their median on a GPU.
        """
        start_ns = time.perf_counter_ns()
        with torch.inference_mode(), float32_precision(self._needs.compute_dtype):
            read_bytes_per_s = self._read_bytes_per_s()
            matmul_flops_per_s = self._matmul_flops_per_s()
            skinny = self._read_skinny()
        return CeilingReading(
            time_s=time_s,
            duration_s=(time.perf_counter_ns() - start_ns) / 1e9,
            read_bytes_per_s=read_bytes_per_s,
            read_buffer_bytes=self._stream.pool.nbytes,
            read_level=self._level,
            read_kernel=self._reader.kernel.name,
            matmul_dtype=self._needs.compute_dtype,
            matmul_flops_per_s=matmul_flops_per_s,
            matmul_shape=self._product.shape,
            skinny=skinny,
        )

    def _read_bytes_per_s(self) -> float:
        rates = repeat(
            self._stopwatch,
            self._reader,
            self._reader.bytes_per_call,
            budget_s=_PART_S,
            at_least=_FEWEST_CALLS,
        )
        self._reader.expect(rates.best)
        return rates.ceiling(self._device)

    def _matmul_flops_per_s(self) -> float:
        (rates,) = race_contenders(
            [self._product], self._stopwatch, budget_s=_PART_S, at_least=_FEWEST_CALLS
        )
        return rates.ceiling(self._device)

    def _read_skinny(self) -> SkinnyReading | None:
        if self._skinny is None or self._needs.skinny_rows is None:
            return None
        return SkinnyReading(
            rows=self._needs.skinny_rows,
            dtype=self._needs.compute_dtype,
            kernel=self._product_name,
            bytes_per_s=self._skinny.read(_PART_S),
        )

    def _choose_reader(self, threads: int) -> ReadProbe:
        """By median, not by best: one lucky call must not choose for a whole run."""
        kernels = read_kernels(self._device, threads)
        probes = read_probes(kernels, self._stream, self._stopwatch)
        work = next(iter(probes.values())).bytes_per_call
        rates = race(self._stopwatch, probes, work, budget_s=_RACE_S, at_least=_FEWEST_CALLS)
        return probes[max(rates, key=lambda name: rates[name].median)]

    def _choose_matmul(self) -> Contender:
        contenders = best_contenders(
            self._needs.compute_dtype,
            self._device,
            self._stopwatch,
            budget_s=_SWEEP_S,
            call_s=_PART_S / _FEWEST_CALLS,
        )
        rates = race_contenders(
            contenders, self._stopwatch, budget_s=_RACE_S, at_least=_FEWEST_CALLS
        )
        return contenders[max(range(len(contenders)), key=lambda index: rates[index].median)]

    def _open_skinny(self, make_product: MakeProduct) -> SkinnyProbe | None:
        if self._needs.skinny_rows is None or not self._needs.skinny_shapes:
            return None
        return SkinnyProbe(
            self._needs.skinny_shapes,
            self._needs.skinny_rows,
            self._stream,
            self._stopwatch,
            working_set_bytes=self._needs.working_set_bytes,
            make_product=make_product,
        )


def _check_dtype(needs: CeilingNeeds, device: str) -> None:
    known = matmul_dtypes(device)
    skinny = needs.skinny_rows is not None and needs.skinny_shapes
    if needs.compute_dtype in known and (needs.compute_dtype in TORCH_DTYPES or not skinny):
        return
    raise CapabilityError(
        f"no live ceiling for matmuls in {needs.compute_dtype} on {device}",
        remedy=f"Compute in one of {', '.join(name for name in known if name in TORCH_DTYPES)}",
    )
