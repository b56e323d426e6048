"""How many parameters a model has, and how many of them one token uses, by each convention.

"Active" means three things in model cards: with the embedding table and the head, without the table
(which is looked up, not multiplied), and without both. All three are given, each under its name.
"""

from dataclasses import dataclass
from math import prod

from llmprof.architectures.manifest import (
    EMBEDDING,
    LM_HEAD,
    PER_LAYER_EMBEDDING,
    expected_tensors,
)
from llmprof.architectures.mtp import mtp_parameters
from llmprof.schema.layers import ExpertMlp
from llmprof.schema.model import ModelConfig


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """A tied matrix counts once; buffers, scales and zero points count nothing."""

    total: int
    """Of the decoder: layers for multi-token prediction and vision towers are apart."""
    embedding: int
    """Tables that are looked up, the tied head among them."""
    head: int
    """Of its own; 0 where it is tied."""
    routed_experts: int
    """All experts that are chosen from, in all layers."""
    active: int
    """That one token uses: the chosen experts, and everything else in full."""
    active_without_embedding: int
    """Without the table that is only looked up; a tied one is multiplied as the head, and stays."""
    active_without_embedding_and_head: int
    mtp: int
    """Of the layers for multi-token prediction, copies of shared matrices left out."""
    vision: int | None
    """None where there is no tower, or one of a kind that is not known."""

    @property
    def without_embedding_and_head(self) -> int:
        return self.total - self.embedding - self.head


def count_parameters(model: ModelConfig) -> ParameterCount:
    sizes = {name: prod(shape) for name, shape in expected_tensors(model).items()}
    total = sum(sizes.values())
    second = sizes.get(PER_LAYER_EMBEDDING, 0)
    table = sizes[EMBEDDING]
    head = sizes.get(LM_HEAD, 0)
    active = total - sum(
        count * _idle(model, layer.mlp)
        for layer, count in model.kinds
        if isinstance(layer.mlp, ExpertMlp)
    )
    looked_up = second + (0 if model.tie_word_embeddings else table)
    return ParameterCount(
        total=total,
        embedding=table + second,
        head=head,
        routed_experts=sum(
            count * layer.mlp.num_experts * expert_parameters(model, layer.mlp)
            for layer, count in model.kinds
            if isinstance(layer.mlp, ExpertMlp)
        ),
        active=active,
        active_without_embedding=active - looked_up,
        active_without_embedding_and_head=active - table - second - head,
        mtp=mtp_parameters(model),
        vision=model.vision.parameters if model.vision else None,
    )


def expert_parameters(model: ModelConfig, mlp: ExpertMlp) -> int:
    """Of one routed expert of a layer: gate, up and down, and their biases."""
    weights = 3 * model.hidden_size * mlp.intermediate_size
    return weights + (2 * mlp.intermediate_size + model.hidden_size if mlp.bias else 0)


def _idle(model: ModelConfig, mlp: ExpertMlp) -> int:
    return (mlp.num_experts - mlp.experts_per_token) * expert_parameters(model, mlp)
