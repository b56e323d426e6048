"""Which cache a setting asks for."""

import torch

from llmprof.engine.kv_cache.base import KvCache, NoCache
from llmprof.engine.kv_cache.plan import PoolPlan
from llmprof.engine.kv_cache.pool import KvPool
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import KvDtype


def stored_dtype(wanted: KvDtype, compute_dtype: str) -> str:
    """The name of the dtype that keys and values are kept in: fp32, bf16, fp16, int8 or fp8."""
    return compute_dtype if wanted is KvDtype.AS_WEIGHTS else wanted.value


def make_cache(
    plan: PoolPlan,
    model: ModelConfig,
    *,
    kv_dtype: str,
    dtype: torch.dtype,
    device: str,
) -> KvCache:
    """The store of a plan, or nothing where the plan has no block."""
    if not plan.num_blocks:
        return NoCache()
    return KvPool(
        model,
        num_blocks=plan.num_blocks,
        block_tokens=plan.block_tokens,
        kv_dtype=kv_dtype,
        dtype=dtype,
        device=device,
        scratch=plan.scratch,
    )
