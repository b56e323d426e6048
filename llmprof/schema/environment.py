"""Where it ran: enough to judge whether two runs are comparable."""

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from llmprof.schema.record import Record


class CacheLevel(Record):
    level: int
    size_bytes: PositiveInt
    shared_by: PositiveInt
    """Logical processors that share one instance."""


class CpuInfo(Record):
    model: str
    logical_cores: PositiveInt
    usable_cores: PositiveInt
    """What affinity and control groups leave to this process."""
    caches: tuple[CacheLevel, ...]
    isa: tuple[str, ...]
    """Instruction sets that matter here: avx2, avx512f, avx512_bf16, avx512_vnni, amx_bf16, ..."""
    governor: str | None
    quota_cores: float | None = None
    """Cores' worth of CPU time that the tightest control group allows, 1.5 of a container with
    `--cpus=1.5`; null without a limit."""


class GpuInfo(Record):
    name: str
    uuid: str
    """That NVML knows it by: of the MIG instance where CUDA_VISIBLE_DEVICES names one."""
    memory_bytes: PositiveInt
    compute_capability: str
    multiprocessors: PositiveInt
    l2_bytes: NonNegativeInt | None
    driver_version: str | None
    power_limit_w: NonNegativeFloat | None
    max_sm_clock_hz: NonNegativeFloat | None
    mig: bool | None
    unified_memory: bool | None = None
    """The GPU shares the host's memory; null where torch does not tell."""
    missing: dict[str, str] = Field(default_factory=dict)
    """Fields that could not be read, with the reason."""


class Environment(Record):
    """The machine and the software, taken before the first round."""

    device: str
    """`cpu` or `cuda:N`, as resolved."""
    device_name: str
    cpu: CpuInfo
    gpu: GpuInfo | None
    memory_bytes: PositiveInt
    """Physical memory of the host, or its control group's limit."""
    memory_available_bytes: NonNegativeInt
    virtualized: bool | None
    os: str
    python: str
    versions: dict[str, str]
    """Library versions, torch first."""
    threads: PositiveInt
    variables: dict[str, str] = Field(default_factory=dict)
    """Environment variables that change speed, from an allow-list (OMP_*, KMP_*, CUDA_*, ...)."""
    fingerprint: str
    """Hash over what must agree for two runs to be compared: device, software, threads."""

    @property
    def sleeps_between_ops(self) -> str | None:
        """The variable by which OpenMP's threads sleep as soon as they wait, with its value.

        By default they spin for a while first, so that the next op finds them awake.
        """
        asleep = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
        for name, value in asleep.items():
            if self.variables.get(name, "").strip().lower() == value:
                return f"{name}={self.variables[name]}"
        return None
