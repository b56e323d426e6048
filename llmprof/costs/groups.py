"""Which op reads a weight tensor, and which group an op belongs to."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from llmprof.architectures.manifest import FLOAT_BYTES
from llmprof.costs.weight_formats import FP8
from llmprof.errors import CapabilityError
from llmprof.schema.cost import OpGroup
from llmprof.schema.model import TensorSpec, WeightManifest

_OP_OF_MODULE: Mapping[str, str] = {
    "embed_tokens": "embedding",
    "embed_tokens_per_layer": "embedding.per_layer",
    "embed_positions": "embedding.positions",
    "input_layernorm": "norm.input",
    "q_norm": "norm.query",
    "k_norm": "norm.key",
    "q_a_layernorm": "norm.query_latent",
    "kv_a_layernorm": "norm.kv_latent",
    "q_proj": "qkv_projection",
    "k_proj": "qkv_projection",
    "v_proj": "qkv_projection",
    "qkv_proj": "qkv_projection",
    "q_a_proj": "qkv_projection.query_latent",
    "q_b_proj": "qkv_projection.query",
    "kv_a_proj_with_mqa": "qkv_projection.kv_latent",
    "kv_b_proj": "qkv_projection.kv",
    "o_proj": "output_projection",
    "post_attention_layernorm": "norm.post_attention",
    "post_self_attn_layernorm": "norm.post_self_attention",
    "post_mlp_layernorm": "norm.post_mlp",
    "pre_feedforward_layernorm": "norm.pre_feedforward",
    "post_feedforward_layernorm": "norm.post_feedforward",
    "pre_feedforward_layernorm_2": "norm.pre_experts",
    "post_feedforward_layernorm_1": "norm.post_dense",
    "post_feedforward_layernorm_2": "norm.post_experts",
    "ln_attn": "norm.attention",
    "ln_mlp": "norm.feed_forward",
    "gate_proj": "gate_up_projection",
    "up_proj": "gate_up_projection",
    "gate_up_proj": "gate_up_projection",
    "down_proj": "down_projection",
    "router": "gate_up_projection.router",
    "shared_expert_gate": "gate_up_projection.shared_gate",
    "per_layer_model_projection": "other.per_layer_inputs",
    "per_layer_projection_norm": "norm.per_layer_inputs",
    "per_layer_input_gate": "other.per_layer_gate",
    "per_layer_projection": "other.per_layer_projection",
    "post_per_layer_input_norm": "norm.per_layer",
    "norm": "norm.final",
    "lm_head": "lm_head",
}
_OP_IN_LINEAR_ATTENTION: Mapping[str, str] = {
    "in_proj_qkvz": "qkv_projection.linear",
    "in_proj_ba": "qkv_projection.linear",
    "in_proj_qkv": "qkv_projection.linear",
    "in_proj_z": "qkv_projection.linear",
    "in_proj_b": "qkv_projection.linear",
    "in_proj_a": "qkv_projection.linear",
    "conv1d": "attention.convolution",
    "norm": "norm.state",
    "out_proj": "output_projection.linear",
}
_OP_OF_PARAMETER: Mapping[str, str] = {
    "self_attn.sinks": "attention",
    "linear_attn.dt_bias": "attention.state",
    "linear_attn.A_log": "attention.state",
    "router.scale": "gate_up_projection.router",
    "router.per_expert_scale": "gate_up_projection.router",
    "router.e_score_correction_bias": "gate_up_projection.router",
}
"""Of bare parameters: no `.weight`, no `.bias`."""
_PARTS: Mapping[str, str] = {".mlp.experts.": ".experts", ".mlp.shared_experts.": ".shared"}
"""Where a projection belongs to experts, its op is one of its own."""
_LAYER = re.compile(r"model\.layers\.(\d+)\.", re.ASCII)


def op_of_tensor(name: str) -> str:
    """The op that reads a tensor: `model.layers.3.self_attn.q_proj.bias` -> `qkv_projection`.

    Raises:
        CapabilityError: a tensor that no op of a decoder reads.
    """
    parent, _, last = name.rpartition(".")
    owner, _, module = parent.rpartition(".")
    op = _OP_OF_PARAMETER.get(f"{module}.{last}")
    if op is None and last in ("weight", "bias"):
        known = _OP_IN_LINEAR_ATTENTION if owner.endswith("linear_attn") else _OP_OF_MODULE
        op = known.get(module)
    if op is None:
        raise CapabilityError(f"weight tensor '{name}' belongs to no op that costs know")
    return op + next((part for inside, part in _PARTS.items() if inside in name), "")


def group_of_op(op: str) -> OpGroup:
    """The group of an op: the part of its name before the dot."""
    return OpGroup(op.partition(".")[0])


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """Weights of all layers, by the op that reads them."""

    bytes_by_op: Mapping[str, int]
    embedding_rows: int
    packed_by_op: Mapping[str, int] = field(default_factory=dict)
    """Numbers of weights that are stored as codes."""
    fp8_ops: frozenset[str] = frozenset()
    """Those whose weights are in fp8 with a scale per row."""

    @classmethod
    def of(cls, weights: WeightManifest) -> "StoredWeights":
        """Sort a manifest.

        Raises:
            CapabilityError: a tensor that no op reads.
        """
        return cls._sorted(weights.tensors)

    @classmethod
    def by_kind(
        cls, weights: WeightManifest, pattern: Sequence[int]
    ) -> dict[int | None, "StoredWeights"]:
        """Sort a manifest by the kind of layer that a tensor lies in; None: in no layer.

        `pattern` gives the kind of each layer.

        Raises:
            CapabilityError: a tensor that no op reads.
        """
        found: dict[int | None, list[TensorSpec]] = {None: []}
        for tensor in weights.tensors:
            layer = _LAYER.match(tensor.name)
            kind = pattern[int(layer[1])] if layer else None
            found.setdefault(kind, []).append(tensor)
        return {kind: cls._sorted(tensors) for kind, tensors in found.items()}

    @classmethod
    def _sorted(cls, tensors: Iterable[TensorSpec]) -> "StoredWeights":
        by_op: dict[str, int] = {}
        packed: dict[str, int] = {}
        fp8 = set()
        rows = 0
        for tensor in tensors:
            op = op_of_tensor(tensor.name)
            by_op[op] = by_op.get(op, 0) + tensor.stored_bytes
            if tensor.stored_dtype not in FLOAT_BYTES:
                packed[op] = packed.get(op, 0) + tensor.parameters
            if tensor.stored_dtype == FP8.name:
                fp8.add(op)
            if op == "embedding":
                rows = tensor.shape[0]
        return cls(by_op, rows, packed, frozenset(fp8))

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

    def is_fp8(self, op: str) -> bool:
        """Whether the weights of an op are in fp8 with a scale per row."""
        return op in self.fp8_ops

    def _stored_under(self, op: str) -> str:
        for name in (op, "embedding") if op == "lm_head" else (op,):
            if name in self.bytes_by_op:
                return name
        raise ValueError(f"the weight manifest has no tensor for {op}")
