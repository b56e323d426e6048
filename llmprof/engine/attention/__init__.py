"""Attention over cached and new keys and values, with grouped query heads."""

from llmprof.engine.attention.base import Attention, DecodeKernel
from llmprof.engine.attention.chunk_kernels import ChunkKernel
from llmprof.engine.attention.flash import FlashAttention
from llmprof.engine.attention.kinds import make_attention
from llmprof.engine.attention.prefill_kernels import PrefillKernel
from llmprof.engine.attention.score_rule import ScoreRule, score_rules
from llmprof.engine.attention.standard import StandardAttention

__all__ = [
    "Attention",
    "ChunkKernel",
    "DecodeKernel",
    "FlashAttention",
    "PrefillKernel",
    "ScoreRule",
    "StandardAttention",
    "make_attention",
    "score_rules",
]
