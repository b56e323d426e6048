"""One CUDA device as torch and NVML describe it."""

import os
from typing import Any

from llmprof.errors import CapabilityError
from llmprof.instruments.nvml import NvmlDescription, NvmlUnavailable, nvml_uuid, open_nvml
from llmprof.schema.environment import GpuInfo


def gpu_info(device: str, *, nvml: Any = None) -> GpuInfo:
    """Description of `cuda:N` (torch's numbering). Raises CapabilityError where torch has none.

    Size, multiprocessors and caches come from torch, which knows unified memory too; driver, power
    limit and clocks from NVML, each null with a reason where it does not answer.
    """
    properties = _properties(device)
    index = int(device.partition(":")[2] or 0)
    uuid = nvml_uuid(str(getattr(properties, "uuid", "")), index, os.environ)
    described = _described(uuid, nvml)
    integrated = getattr(properties, "is_integrated", None)
    return GpuInfo(
        name=properties.name,
        uuid=uuid,
        memory_bytes=properties.total_memory,
        compute_capability=f"{properties.major}.{properties.minor}",
        multiprocessors=properties.multi_processor_count,
        l2_bytes=getattr(properties, "L2_cache_size", None),
        driver_version=described.driver_version,
        power_limit_w=described.power_limit_w,
        max_sm_clock_hz=described.max_sm_clock_hz,
        mig=described.mig,
        unified_memory=None if integrated is None else bool(integrated),
        missing=described.missing,
    )


def _properties(device: str) -> Any:
    try:
        import torch

        return torch.cuda.get_device_properties(device)
    except (ImportError, OSError, AssertionError, RuntimeError) as error:
        # torch asserts that it was built with CUDA, and raises RuntimeError for the rest.
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CapabilityError(
            f"the device {device} cannot be used: {first_line}",
            remedy="Use --device cpu, or run `llmprof doctor` to see what is missing",
        ) from error


def _described(uuid: str, nvml: Any) -> NvmlDescription:
    session = open_nvml(uuid, nvml=nvml)
    if isinstance(session, NvmlUnavailable):
        return NvmlDescription(None, None, None, None, {"nvml": session.reason})
    description = session.describe()
    session.close()
    return description
