"""Which formats a plan counts weights and KV cache in, from the settings and the file's headers."""

from llmprof.architectures.manifest import manifest_from_config
from llmprof.architectures.source import ModelSource
from llmprof.costs.cache_access import kv_access
from llmprof.costs.options import CostOptions, options_from
from llmprof.costs.row_buckets import buckets_of
from llmprof.costs.weight_layout import float_dtype, laid_out
from llmprof.schema.model import ModelConfig, WeightManifest
from llmprof.schema.settings import AttentionKind, KvDtype, Quantization, RunConfig, WeightDtype


def compute_dtype_of(source: ModelSource, config: RunConfig) -> str:
    """fp32, bf16 or fp16."""
    if config.weights.dtype is not WeightDtype.AS_STORED:
        return config.weights.dtype.value
    return float_dtype(source.manifest)


def planned_weights(source: ModelSource, config: RunConfig) -> WeightManifest:
    """As the files store them, in another float dtype, or packed by the engine.

    Raises:
        CapabilityError: a matrix that cannot be packed so.
    """
    weights = config.weights
    if weights.quantization is not Quantization.NONE:
        return laid_out(source.config, weights, compute_dtype_of(source, config))
    if weights.dtype is WeightDtype.AS_STORED:
        return source.manifest
    return manifest_from_config(source.config, weights.dtype.value)


def kv_dtype_of(config: RunConfig, compute_dtype: str) -> str:
    dtype = config.kv_cache.dtype
    return compute_dtype if dtype is KvDtype.AS_WEIGHTS else dtype.value


def planned_options(model: ModelConfig, config: RunConfig, compute_dtype: str) -> CostOptions:
    """The switches that change bytes; the scales of an int8 cache are counted.

    Fused attention is taken to read the cache where it is when it decodes.
    """
    flash = config.attention.kind is AttentionKind.FLASH
    return options_from(
        config,
        compute_dtype=compute_dtype,
        kv_dtype=kv_dtype_of(config, compute_dtype),
        head_dim=model.head_dim,
        kv_access=kv_access(config, decode_kernel=flash),
        row_buckets=buckets_of(config),
    )


def weight_format(manifest: WeightManifest) -> str:
    """The formats that hold most of the bytes, at most three: "q8_0 + fp32"."""
    by_dtype: dict[str, int] = {}
    for tensor in manifest.tensors:
        by_dtype[tensor.stored_dtype] = by_dtype.get(tensor.stored_dtype, 0) + tensor.stored_bytes
    return " + ".join(sorted(by_dtype, key=lambda dtype: -by_dtype[dtype])[:3])
