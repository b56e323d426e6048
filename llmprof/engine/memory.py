"""Does it fit? Asked before anything is loaded, and explained if it did not after all."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from llmprof.costs.memory import MemoryNeed, kv_budget_bytes, memory_need
from llmprof.costs.tensor_parallel import shard_of
from llmprof.costs.weight_layout import laid_out
from llmprof.engine.capabilities import serves_requests
from llmprof.engine.serving_memory import cost_options_on_paper, serving_memory
from llmprof.errors import DoesNotFitError, MeasurementFailedError
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import ContextKind, RunConfig
from llmprof.units import byte_count

_HOST_ALLOCATOR: Final = "DefaultCPUAllocator"
"""Named in the RuntimeError that torch raises when the host has no memory left."""


def predicted_memory(model: ModelConfig, config: RunConfig, dtype: str) -> MemoryNeed:
    """What a run holds at its largest step, weights and activations in one dtype (fp32, bf16, fp16).

    Raises:
        InputError: a trace that cannot be read.
        CapabilityError: `kv_cache.memory_bytes` does not hold a single block.
    """
    if serves_requests(config):
        return serving_memory(model, config, dtype)
    workload = config.workload
    prefills = workload.context is ContextKind.REAL
    return memory_need(
        model,
        laid_out(shard_of(model, config.parallel.tensor), config.weights, dtype),
        cost_options_on_paper(model, config, dtype),
        batch=workload.batch,
        prompt_tokens=workload.prompt_tokens if prefills else 1,
        max_tokens=workload.prompt_tokens + workload.output_tokens,
    )


def check_memory(
    need: MemoryNeed,
    *,
    name: str,
    device: str,
    host_available_bytes: int,
    weights_in_memory: bool = False,
) -> None:
    """Refuse what cannot fit.

    Args:
        need: as predicted.
        name: of the model, for the message.
        device: `cpu` or `cuda:N`; a GPU is asked for its free memory.
        host_available_bytes: what a new allocation on the host can get.
        weights_in_memory: they are loaded already; what they take counts as available to them.

    Raises:
        DoesNotFitError: with the numbers.
    """
    available = total = host_available_bytes
    if device.startswith("cuda"):
        available, total = torch.cuda.mem_get_info(device)
    if weights_in_memory:
        available += round(need.weight_bytes)
        total = max(total, available)
    if need.total_bytes <= available:
        return
    own_peak_bytes = need.weight_bytes + need.activation_bytes
    budget = kv_budget_bytes(
        total_bytes=total,
        fraction=1.0,
        own_peak_bytes=own_peak_bytes,
        free_bytes=available - own_peak_bytes,
    )
    raise DoesNotFitError(
        f"{name} needs {byte_count(need.total_bytes)} on {device} "
        f"({byte_count(need.weight_bytes)} weights, {byte_count(need.kv_bytes)} KV cache, "
        f"{byte_count(need.activation_bytes)} activations), "
        f"but {byte_count(available)} is available",
        remedy="Choose a smaller model or weights.dtype, fewer sequences or fewer tokens"
        + (f"; a KV cache of {byte_count(budget)} would fit" if budget else ""),
    )


@contextmanager
def out_of_memory_explained(doing: str) -> Iterator[None]:
    """Turn torch's out-of-memory errors into one line.

    Raises:
        MeasurementFailedError: memory ran out while `doing`.
    """
    try:
        yield
    except RuntimeError as error:
        gpu_full = isinstance(error, torch.OutOfMemoryError)
        if not gpu_full and _HOST_ALLOCATOR not in str(error):
            raise
        raise MeasurementFailedError(
            f"out of memory while {doing}",
            remedy="Choose a smaller model or weights.dtype, fewer sequences or fewer tokens",
        ) from error
