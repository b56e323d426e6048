"""Which op reads a weight tensor, and which group an op belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmprof.errors import CapabilityError
from llmprof.schema.cost import OpGroup
from llmprof.schema.model import WeightManifest

_OP_OF_MODULE: Mapping[str, str] = {
    "embed_tokens": "embedding",
    "input_layernorm": "norm.input",
    "q_norm": "norm.query",
    "k_norm": "norm.key",
    "q_proj": "qkv_projection",
    "k_proj": "qkv_projection",
    "v_proj": "qkv_projection",
    "o_proj": "output_projection",
    "post_attention_layernorm": "norm.post_attention",
    "gate_proj": "gate_up_projection",
    "up_proj": "gate_up_projection",
    "down_proj": "down_projection",
    "norm": "norm.final",
    "lm_head": "lm_head",
}


def op_of_tensor(name: str) -> str:
    """The op that reads a tensor: `model.layers.3.self_attn.q_proj.bias` -> `qkv_projection`.

    Raises:
        CapabilityError: a tensor that no op of a llama-family decoder reads.
    """
    module, _, kind = name.rpartition(".")
    op = _OP_OF_MODULE.get(module.rpartition(".")[2])
    if op is None or kind not in ("weight", "bias"):
        raise CapabilityError(f"weight tensor '{name}' belongs to no op that costs know")
    return op


def group_of_op(op: str) -> OpGroup:
    """The group of an op: the part of its name before the dot."""
    return OpGroup(op.partition(".")[0])


def group_of_tensor(name: str) -> OpGroup:
    """The group whose ops read a tensor; a tied head is stored under `embedding`."""
    return group_of_op(op_of_tensor(name))


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """Stored bytes of all layers, by the op that reads them."""

    bytes_by_op: Mapping[str, int]
    embedding_rows: int

    @classmethod
    def of(cls, weights: WeightManifest) -> "StoredWeights":
        """Sort a manifest.

        Raises:
            CapabilityError: a tensor that no op reads.
        """
        by_op: dict[str, int] = {}
        rows = 0
        for tensor in weights.tensors:
            op = op_of_tensor(tensor.name)
            by_op[op] = by_op.get(op, 0) + tensor.stored_bytes
            if op == "embedding":
                rows = tensor.shape[0]
        return cls(bytes_by_op=by_op, embedding_rows=rows)

    def read_by(self, op: str) -> int:
        """Bytes that an op reads in full: the head reads the embedding table where it is tied.

        Raises:
            ValueError: the manifest has no tensor for this op.
        """
        for name in (op, "embedding") if op == "lm_head" else (op,):
            if name in self.bytes_by_op:
                return self.bytes_by_op[name]
        raise ValueError(f"the weight manifest has no tensor for {op}")

    @property
    def embedding_row(self) -> float:
        """Bytes of one row of the embedding table."""
        return self.read_by("embedding") / self.embedding_rows
