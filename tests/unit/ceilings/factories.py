"""Machines with known caches, and ceilings of them."""

from datetime import UTC, datetime

from llmprof.schema.ceilings import BandwidthCeiling, Ceilings, ComputeCeiling, FixedCost, MemoryOp
from llmprof.schema.environment import CacheLevel, CpuInfo, Environment, GpuInfo
from llmprof.schema.measurement import Caveat

MIB = 1 << 20
GIB = 1 << 30
NOON = datetime(2030, 5, 1, 12, tzinfo=UTC)


def a_cpu(
    *caches: CacheLevel, threads: int = 2, usable_cores: int = 2, fingerprint: str = "0" * 12
) -> Environment:
    """A host with 16 GiB and these caches."""
    cpu = CpuInfo(
        model="a CPU",
        logical_cores=usable_cores,
        usable_cores=usable_cores,
        caches=caches,
        isa=(),
        governor=None,
    )
    return Environment(
        device="cpu",
        device_name="a CPU",
        cpu=cpu,
        gpu=None,
        memory_bytes=16 * GIB,
        memory_available_bytes=12 * GIB,
        virtualized=True,
        os="Linux",
        python="CPython 3.12",
        versions={"torch": "2.13.0"},
        threads=threads,
        fingerprint=fingerprint,
    )


def a_gpu(l2_bytes: int | None = 50 * MIB, uuid: str = "GPU-1") -> Environment:
    gpu = GpuInfo(
        name="a GPU",
        uuid=uuid,
        memory_bytes=80 * GIB,
        compute_capability="9.0",
        multiprocessors=132,
        l2_bytes=l2_bytes,
        driver_version=None,
        power_limit_w=None,
        max_sm_clock_hz=None,
        mig=None,
    )
    return a_cpu().model_copy(update={"device": "cuda:0", "device_name": "a GPU", "gpu": gpu})


def l2(size_bytes: int, shared_by: int = 1) -> CacheLevel:
    return CacheLevel(level=2, size_bytes=size_bytes, shared_by=shared_by)


def l3(size_bytes: int, shared_by: int = 2) -> CacheLevel:
    return CacheLevel(level=3, size_bytes=size_bytes, shared_by=shared_by)


def some_ceilings(
    environment: Environment,
    *,
    measured_at: datetime = NOON,
    dram_from: int = 512 * MIB,
    caveats: tuple[Caveat, ...] = (),
) -> Ceilings:
    read = BandwidthCeiling(
        op=MemoryOp.READ,
        level="DRAM",
        buffer_bytes=dram_from,
        bytes_per_s=30e9,
        median_bytes_per_s=28e9,
        spread=0.05,
        kernel="llmprof::read 4x",
    )
    matmul = ComputeCeiling(
        dtype="bf16",
        m=2048,
        n=1024,
        k=512,
        flops_per_s=2e12,
        median_flops_per_s=1.9e12,
        spread=0.02,
        kernel="torch.mm",
    )
    return Ceilings(
        measured_at=measured_at,
        environment=environment,
        bandwidth=(read,),
        compute=(matmul,),
        fixed_cost=FixedCost(alpha_s=3e-6, spread=0.1, method="intercept"),
        caveats=caveats,
    )
