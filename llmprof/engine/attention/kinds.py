"""Which attention a setting asks for."""

from llmprof.engine.attention.base import Attention
from llmprof.engine.attention.chunk_kernels import find_chunk_kernel
from llmprof.engine.attention.decode_kernels import find_decode_kernel
from llmprof.engine.attention.flash import FlashAttention
from llmprof.engine.attention.prefill_kernels import find_prefill_kernel
from llmprof.engine.attention.score_rule import ScoreRule
from llmprof.engine.attention.standard import StandardAttention
from llmprof.schema.settings import AttentionKind


def make_attention(
    kind: AttentionKind, device: str, rules: tuple[ScoreRule, ...] = ()
) -> Attention:
    """For `cpu` or `cuda:N`; `rules` for each layer, none where all are plain."""
    match kind:
        case AttentionKind.STANDARD:
            return StandardAttention(rules)
        case AttentionKind.FLASH:
            return FlashAttention(
                find_decode_kernel(device),
                find_prefill_kernel(device),
                rules,
                find_chunk_kernel(device),
            )
