"""Environments of machines with known caches."""

from llmprof.schema.environment import CacheLevel, CpuInfo, Environment, GpuInfo

MIB = 1 << 20
GIB = 1 << 30


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
