"""Everything that is asked of a run before a byte of its model is read."""

from llmprof.architectures.source import ModelSource, require_weights
from llmprof.engine.capabilities import (
    check_attention,
    check_capabilities,
    check_fused,
    check_weights,
    check_workload,
)
from llmprof.engine.dtypes import ComputeDtype, compute_dtype
from llmprof.engine.memory import check_memory, predicted_memory
from llmprof.engine.runnable import check_model, check_switches
from llmprof.schema.settings import RunConfig


def admit(
    source: ModelSource,
    config: RunConfig,
    *,
    device: str,
    host_available_bytes: int,
    num_ranks: int = 1,
    weights_in_memory: bool = False,
) -> ComputeDtype:
    """Check that the engine can run `config`, and say what it computes in.

    Args:
        source: the model as found.
        config: of the run; its `model` and `device` have become `source` and `device` already.
        device: `cpu` or `cuda:N`.
        host_available_bytes: memory that a new allocation on the host can get.
        num_ranks: processes that share out the model.
        weights_in_memory: they are loaded already, and need no more room.

    Raises:
        CapabilityError: a switch that the engine does not have, or a run that does not fit.
        InputError: more tokens than positions, or no weights.
    """
    check_capabilities(config, ranks=num_ranks)
    check_model(source)
    check_switches(source.config, config)
    check_weights(config.weights, device)
    check_attention(config, device)
    check_workload(config, source.config)
    require_weights(source, config.weights)
    dtype = compute_dtype(config.weights.dtype, source.manifest)
    check_fused(config, dtype.name, device)
    check_memory(
        predicted_memory(source.config, config, dtype.name),
        name=source.name,
        device=device,
        host_available_bytes=host_available_bytes,
        weights_in_memory=weights_in_memory,
    )
    return dtype
