"""What planted workloads are built on: the device, its ceilings, and one stream far beyond its caches."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from llmprof.ceilings.measure import cached_ceilings
from llmprof.ceilings.pool import Stream, random_pool
from llmprof.ceilings.read_kernels import ReadKernel, read_kernels
from llmprof.instruments.snapshot import llc_bytes, resolve_threads, snapshot
from llmprof.schema.ceilings import Ceilings, MemoryOp
from llmprof.schema.environment import Environment
from tests.zoo.pieces import Piece
from tests.zoo.workload import PlantedWorkload

_FAR_LLCS = 8
_FAR_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class Bench:
    device: str
    environment: Environment
    ceilings: Ceilings
    stream: Stream
    """As large as eight last-level caches, or as a quarter of the free memory where that is less."""
    kernels: tuple[ReadKernel, ...]
    random: random.Random
    """Sizes come from here."""

    @classmethod
    def open(cls, device: str, seed: int) -> "Bench":
        threads = resolve_threads(None)
        torch.set_num_threads(threads)
        environment = snapshot(device, threads)
        wanted = max(_FAR_BYTES, _FAR_LLCS * llc_bytes(environment))
        return cls(
            device=device,
            environment=environment,
            ceilings=cached_ceilings(environment, device),
            stream=Stream(random_pool(wanted, device, torch.float32)),
            kernels=read_kernels(device),
            random=random.Random(seed),
        )

    @property
    def threads(self) -> int:
        return self.environment.threads

    @property
    def far_bytes(self) -> int:
        return self.stream.pool.nbytes

    @property
    def read_bytes_per_s(self) -> float:
        """Of the largest buffer that was read once: sizes follow from it, judgements do not."""
        reads = [one for one in self.ceilings.bandwidth if one.op is MemoryOp.READ]
        return max(reads, key=lambda one: one.buffer_bytes).bytes_per_s

    def flops_per_s(self, dtype: str) -> float | None:
        return max(
            (one.flops_per_s for one in self.ceilings.compute if one.dtype == dtype), default=None
        )

    def shape_of(self, dtype: str) -> tuple[int, int, int]:
        """m, n, k of the cached ceiling's best product."""
        known = [one for one in self.ceilings.compute if one.dtype == dtype]
        best = max(known, key=lambda one: one.flops_per_s)
        return best.m, best.n, best.k

    def workload(
        self,
        pieces: Sequence[Piece],
        *,
        working_set_bytes: int | None = None,
        compute_dtype: str = "bf16",
        threads_inside: int | None = None,
        steps: int = 6,
    ) -> PlantedWorkload:
        return PlantedWorkload(
            pieces,
            device=self.device,
            threads=self.threads,
            working_set_bytes=working_set_bytes or self.far_bytes,
            compute_dtype=compute_dtype,
            threads_inside=threads_inside,
            steps=steps,
        )
