"""Keys and values of the tokens so far: one interface, and what lies behind it for each layout."""

from llmprof.engine.kv_cache.base import KvCache, NoCache
from llmprof.engine.kv_cache.block_tables import BlockTables
from llmprof.engine.kv_cache.layouts import make_cache, stored_dtype
from llmprof.engine.kv_cache.plan import PoolPlan, plan_pool, require_whole_batch
from llmprof.engine.kv_cache.pool import KvPool

__all__ = [
    "BlockTables",
    "KvCache",
    "KvPool",
    "NoCache",
    "PoolPlan",
    "make_cache",
    "plan_pool",
    "require_whole_batch",
    "stored_dtype",
]
