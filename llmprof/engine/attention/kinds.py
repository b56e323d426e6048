"""Which attention a setting asks for."""

from llmprof.engine.attention.backends import CacheKernels, native_kernels
from llmprof.engine.attention.base import Attention
from llmprof.engine.attention.flash import FlashAttention
from llmprof.engine.attention.score_rule import ScoreRule
from llmprof.engine.attention.standard import StandardAttention
from llmprof.schema.settings import AttentionKind


def make_attention(
    kind: AttentionKind,
    device: str,
    rules: tuple[ScoreRule, ...] = (),
    kernels: CacheKernels | None = None,
) -> Attention:
    """For `cpu` or `cuda:N`; `rules` for each layer, none where all are plain.

    `kernels`: those that were chosen for fused attention, our own by default.
    """
    match kind:
        case AttentionKind.STANDARD:
            return StandardAttention(rules)
        case AttentionKind.FLASH:
            chosen = kernels or native_kernels(device)
            return FlashAttention(chosen.decode, chosen.prefill, rules, chosen.chunk, chosen.step)
