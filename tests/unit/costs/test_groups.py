"""Which op reads which tensor."""

import pytest

from llmprof.architectures.manifest import expected_tensors, manifest_from_config
from llmprof.costs.groups import StoredWeights, group_of_op, op_of_tensor
from llmprof.errors import CapabilityError
from llmprof.schema.cost import OpGroup
from tests.published import decoder

TOY = decoder("toy", 2, 8, 12, 4, 2, 10, bias=True, qk_norm=True)


@pytest.mark.parametrize(
    ("name", "op", "group"),
    [
        ("model.embed_tokens.weight", "embedding", OpGroup.EMBEDDING),
        ("model.layers.11.self_attn.k_proj.bias", "qkv_projection", OpGroup.QKV_PROJECTION),
        ("model.layers.0.self_attn.q_norm.weight", "norm.query", OpGroup.NORM),
        ("model.layers.0.post_attention_layernorm.weight", "norm.post_attention", OpGroup.NORM),
        ("model.layers.0.mlp.up_proj.weight", "gate_up_projection", OpGroup.GATE_UP_PROJECTION),
        ("model.norm.weight", "norm.final", OpGroup.NORM),
        ("lm_head.weight", "lm_head", OpGroup.LM_HEAD),
    ],
)
def test_op_and_group_of_a_tensor(name: str, op: str, group: OpGroup) -> None:
    assert op_of_tensor(name) == op
    assert group_of_op(op) is group


def test_every_tensor_of_a_model_has_an_op() -> None:
    assert all(op_of_tensor(name) for name in expected_tensors(TOY))


@pytest.mark.parametrize(
    "name",
    ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.0.mlp.gate.weight", "weight"],
)
def test_unknown_tensor_is_refused_and_named(name: str) -> None:
    with pytest.raises(CapabilityError, match=name):
        op_of_tensor(name)


def test_tied_head_reads_the_embedding_and_an_untied_one_its_own() -> None:
    untied = StoredWeights.of(manifest_from_config(TOY, "fp32"))
    tied = StoredWeights.of(
        manifest_from_config(TOY.model_copy(update={"tie_word_embeddings": True}), "fp32")
    )
    assert "lm_head" not in tied.bytes_by_op
    assert tied.read_by("lm_head") == untied.read_by("lm_head") == 10 * 8 * 4


def test_a_manifest_that_lacks_a_tensor_is_no_zero() -> None:
    with pytest.raises(ValueError, match="down_projection"):
        StoredWeights(bytes_by_op={"embedding": 1}, embedding_rows=1).read_by("down_projection")
