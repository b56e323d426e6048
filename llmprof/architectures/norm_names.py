"""The norms over the hidden size that every layer of a family has."""

from llmprof.architectures import limits
from llmprof.architectures.families import LLAMA_NORMS, Family
from llmprof.architectures.fields import Fields

_FALCON_PARALLEL = ("ln_attn", "ln_mlp")
_GEMMA_EXPERTS = (
    "post_feedforward_layernorm_1",
    "post_feedforward_layernorm_2",
    "pre_feedforward_layernorm_2",
)


def norm_names(fields: Fields, family: Family) -> tuple[str, ...]:
    """Names of the modules, in the order of the forward pass."""
    if family.model_type == "falcon":
        return _falcon(fields)
    if family.mlp == "gemma4" and fields.flag("enable_moe_block", default=False):
        return (*family.norms, *_GEMMA_EXPERTS)
    return family.norms


def _falcon(fields: Fields) -> tuple[str, ...]:
    """Attention and feed-forward in parallel share a norm or have one each."""
    newer = fields.flag("new_decoder_architecture", default=False)
    key = "num_ln_in_parallel_attn"
    norms = fields.integer(key, limits.Limits(1, 2)) if fields.has(key) else 2 if newer else 1
    if not newer and not fields.flag("parallel_attn", default=True):
        return LLAMA_NORMS
    return _FALCON_PARALLEL if newer and norms == 2 else LLAMA_NORMS[:1]
