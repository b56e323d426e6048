"""From the settings of a run to the kernels that its attention uses."""

from llmprof.engine.attention import (
    Attention,
    AttentionNeeds,
    CacheKernels,
    choose_kernels,
    make_attention,
    score_rules,
)
from llmprof.engine.attention.score_rule import PLAIN
from llmprof.engine.dtypes import ComputeDtype
from llmprof.engine.kv_cache import stored_dtype
from llmprof.engine.kv_cache.formats import STORED_DTYPES
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import AttentionKind, KvLayout, RunConfig


def cache_kernels(
    config: RunConfig, model: ModelConfig, dtype: ComputeDtype, *, device: str, num_ranks: int
) -> CacheKernels | None:
    """Tried on the device; None for standard attention, which uses none, and without a cache.

    Raises:
        CapabilityError: `attention.backend` does not work here.
    """
    cached = config.kv_cache.layout is not KvLayout.NONE
    if config.attention.kind is not AttentionKind.FLASH or not cached:
        return None
    paged = config.kv_cache.layout is KvLayout.PAGED
    needs = AttentionNeeds(
        device=device,
        dtype=dtype.torch,
        stored=STORED_DTYPES[stored_dtype(config.kv_cache.dtype, dtype.name)],
        num_heads=model.num_attention_heads // num_ranks,
        num_kv_heads=max(1, model.num_key_value_heads // num_ranks),
        head_dim=model.head_dim,
        block_tokens=config.kv_cache.block_tokens if paged else None,
        rules=tuple(dict.fromkeys(score_rules(model))) or (PLAIN,),
    )
    return choose_kernels(config.attention.backend, needs)


def make_chosen(
    config: RunConfig, model: ModelConfig, kernels: CacheKernels | None, device: str
) -> Attention:
    return make_attention(config.attention.kind, device, score_rules(model), kernels)
