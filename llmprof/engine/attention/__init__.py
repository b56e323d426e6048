"""Attention over cached and new keys and values, with grouped query heads."""

from llmprof.engine.attention.backends import CacheKernels, choose_kernels
from llmprof.engine.attention.base import Attention, DecodeKernel
from llmprof.engine.attention.chunk_kernels import ChunkKernel
from llmprof.engine.attention.flash import FlashAttention
from llmprof.engine.attention.kinds import make_attention
from llmprof.engine.attention.needs import AttentionNeeds
from llmprof.engine.attention.prefill_kernels import PrefillKernel
from llmprof.engine.attention.score_rule import ScoreRule, score_rules
from llmprof.engine.attention.standard import StandardAttention
from llmprof.engine.attention.step_kernels import StepKernel

__all__ = [
    "Attention",
    "AttentionNeeds",
    "CacheKernels",
    "ChunkKernel",
    "DecodeKernel",
    "FlashAttention",
    "PrefillKernel",
    "ScoreRule",
    "StandardAttention",
    "StepKernel",
    "choose_kernels",
    "make_attention",
    "score_rules",
]
