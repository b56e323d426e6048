"""Which op reads a weight tensor, and which group an op belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmprof.architectures.manifest import FLOAT_BYTES
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
    """Weights of all layers, by the op that reads them."""

    bytes_by_op: Mapping[str, int]
    embedding_rows: int
    packed_by_op: Mapping[str, int] = field(default_factory=dict)
    """Numbers of weights that are stored as codes."""

    @classmethod
    def of(cls, weights: WeightManifest) -> "StoredWeights":
        """Sort a manifest.

        Raises:
            CapabilityError: a tensor that no op reads.
        """
        by_op: dict[str, int] = {}
        packed: dict[str, int] = {}
        rows = 0
        for tensor in weights.tensors:
            op = op_of_tensor(tensor.name)
            by_op[op] = by_op.get(op, 0) + tensor.stored_bytes
            if tensor.stored_dtype not in FLOAT_BYTES:
                packed[op] = packed.get(op, 0) + tensor.parameters
            if op == "embedding":
                rows = tensor.shape[0]
        return cls(bytes_by_op=by_op, embedding_rows=rows, packed_by_op=packed)

    def read_by(self, op: str) -> int:
        """Bytes that an op reads in full: the head reads the embedding table where it is tied.

        Raises:
            ValueError: the manifest has no tensor for this op.
        """
        return self.bytes_by_op[self._stored_under(op)]

    def packed_of(self, op: str) -> int:
        """Weights of an op that are stored as codes.

        Raises:
            ValueError: the manifest has no tensor for this op.
        """
        return self.packed_by_op.get(self._stored_under(op), 0)

    def _stored_under(self, op: str) -> str:
        for name in (op, "embedding") if op == "lm_head" else (op,):
            if name in self.bytes_by_op:
                return name
        raise ValueError(f"the weight manifest has no tensor for {op}")

    @property
    def embedding_row(self) -> float:
        """Bytes of one row of the embedding table."""
        return self.read_by("embedding") / self.embedding_rows
