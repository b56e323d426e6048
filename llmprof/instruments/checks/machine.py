"""Checks of the host: cores, clock, threads' settings, memory, counters."""

from pathlib import Path

from llmprof import units
from llmprof.instruments.checks.outcome import missing, ok, warn
from llmprof.instruments.system_file import read_text
from llmprof.schema.diagnosis import Check
from llmprof.schema.environment import Environment

_LOW_MEMORY_BYTES = 2 * 2**30
_MEMORY_COUNTERS = ("uncore_imc*", "amd_umc*", "amd_df*")
"""Event sources of the kernel that count DRAM traffic, on Intel and on AMD."""
_PINNING = ("OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")


def check_cores(environment: Environment) -> Check:
    cpu = environment.cpu
    detail = f"{cpu.usable_cores} of {cpu.logical_cores} usable ({cpu.model})"
    if cpu.quota_cores is not None:
        return warn(
            "cores",
            f"{detail}: a control group allows {units.significant(cpu.quota_cores)} cores' worth of "
            "CPU time, and stops every thread of the group for the rest of a period once it is used "
            "up",
            "Lift the limit (docker run --cpus, resources.limits.cpu of a pod) or pin whole cores "
            "instead (--cpuset-cpus)",
        )
    if cpu.usable_cores < cpu.logical_cores:
        return warn(
            "cores",
            f"{detail}: affinity or a control group holds the rest back, and whoever has it "
            "shares memory bandwidth with this process",
        )
    return ok("cores", detail)


def check_governor(environment: Environment) -> Check:
    governor = environment.cpu.governor
    if governor is None:
        return ok("CPU clock", "no governor is visible, as usual in a virtual machine")
    if governor == "performance":
        return ok("CPU clock", "governor performance")
    return warn(
        "CPU clock",
        f"governor {governor}: the clock follows the load and may differ between rounds",
        "Run: sudo cpupower frequency-set -g performance",
    )


def check_openmp(environment: Environment) -> Check:
    """Settings of the OpenMP runtime that torch takes from the environment."""
    variables = environment.variables
    threads = variables.get("OMP_NUM_THREADS")
    usable = environment.cpu.usable_cores
    if threads is not None and threads != str(usable):
        return warn(
            "OpenMP",
            f"OMP_NUM_THREADS={threads} on {usable} usable cores; a run sets its own thread count, "
            "kernels outside torch keep this one",
            "Unset OMP_NUM_THREADS and set execution.threads instead",
        )
    pinned = [name for name in _PINNING if name in variables]
    if pinned and usable < environment.cpu.logical_cores:
        return warn(
            "OpenMP",
            f"{', '.join(pinned)} pins threads while this process may not use every core",
            "Unset it, or check that no two threads share a core",
        )
    asleep = environment.sleeps_between_ops
    if asleep is not None and usable > 1:
        return warn(
            "OpenMP",
            f"{asleep}: threads sleep whenever they wait, and every op has to wake them",
            f"Unset {asleep.partition('=')[0]}",
        )
    policy = variables.get("OMP_WAIT_POLICY")
    waiting = f"OMP_WAIT_POLICY={policy}" if policy else "waiting threads spin, as by default"
    return ok("OpenMP", waiting)


def check_memory(environment: Environment) -> Check:
    available = environment.memory_available_bytes
    detail = (
        f"{units.byte_count(available)} of {units.byte_count(environment.memory_bytes)} available"
    )
    if available < _LOW_MEMORY_BYTES:
        return warn(
            "memory",
            f"{detail}: too little for DRAM buffers beside a model",
            "Free memory or raise the container's limit",
        )
    return ok("memory", detail)


def check_counters(environment: Environment, root: Path = Path("/")) -> Check:
    """Whether the kernel shows counters of the memory controller. llmprof itself counts bytes."""
    sources = root / "sys/bus/event_source/devices"
    found = sorted(path.name for pattern in _MEMORY_COUNTERS for path in sources.glob(pattern))
    if not found:
        where = " in this virtual machine" if environment.virtualized else ""
        return missing(
            "DRAM counters",
            f"DRAM traffic is not measurable here: no uncore counters{where}; "
            "bytes are counted from shapes, a lower bound of the traffic",
        )
    paranoid = read_text(root / "proc/sys/kernel/perf_event_paranoid")
    if paranoid is not None and int(paranoid) > 0:
        return warn(
            "DRAM counters",
            f"{found[0]} exists, but perf_event_paranoid is {paranoid}: for root only",
            "Run: sudo sysctl kernel.perf_event_paranoid=0",
        )
    return ok("DRAM counters", f"{found[0]}: perf stat -a can check the counted bytes")
