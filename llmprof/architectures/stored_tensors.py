"""The tensors of a checkpoint's files as the matrices of a model.

A file may split a matrix into codes, scales and zeros, and the experts of a layer into a tensor
each; here they become one tensor again, with the bytes of all its pieces.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final

from llmprof.architectures.checkpoint_formats import format_name
from llmprof.architectures.checkpoint_names import usual_name
from llmprof.architectures.families import find_family
from llmprof.architectures.manifest import LM_HEAD, expected_buffers, expected_tensors
from llmprof.architectures.safetensors_header import StoredTensor
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.checkpoint_format import CheckpointQuantization
from llmprof.schema.model import ModelConfig, TensorSpec

FLOATS: Final = {"F32": "fp32", "BF16": "bf16", "F16": "fp16"}
_BUFFER: Final = re.compile(
    r"(?:^|\.)(?:rotary_emb\.inv_freq|attn\.(?:masked_)?bias|layer_scalar)$"
)
"""Computed from the configuration or fixed, and stored by some versions of transformers: frequencies,
causal masks, a scalar per layer."""
_APART: Final = re.compile(
    r"^(?:model\.)?(?:mtp\.|vision_tower\.|visual\.|audio_tower\.|multi_modal_projector\.|embed_vision"
    r"|embed_audio)"
)
_LAYER: Final = re.compile(r"^model\.layers\.(\d{1,4})\.", re.ASCII)
_WORD_CODES: Final = ("qweight", "weight_packed")
_WORD_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class JoinedTensors:
    decoder: tuple[TensorSpec, ...]
    apart: tuple[TensorSpec, ...]


@dataclass(slots=True)
class _Pieces:
    """What the files hold of one matrix."""

    plain: list[StoredTensor] = field(default_factory=list)
    parts: dict[str, list[StoredTensor]] = field(default_factory=dict)

    @property
    def stored_bytes(self) -> int:
        every = (*self.plain, *(one for part in self.parts.values() for one in part))
        return sum(one.stored_bytes for one in every)


def joined_tensors(
    config: ModelConfig, stored: Sequence[StoredTensor], *, where: str
) -> JoinedTensors:
    """Whole matrices under their usual names; what belongs to no decoder layer is set apart.

    Raises:
        InputError: pieces that do not make up the matrix of the configuration.
        CapabilityError: a storage format that is not supported.
    """
    family = find_family(config.model_type, where).model_type
    pieces: dict[str, _Pieces] = {}
    apart = []
    for tensor in stored:
        if _is_apart(tensor.name, config):
            apart.append(_apart(tensor))
            continue
        at = usual_name(tensor.name, family)
        own = pieces.setdefault(at.name, _Pieces())
        if at.part is None:
            own.plain.append(tensor)
        else:
            own.parts.setdefault(at.part, []).append(tensor)
    expected = expected_tensors(config) | expected_buffers(config)
    expected.setdefault(LM_HEAD, (config.vocab_size, config.hidden_size))
    decoder = [
        _joined(name, one, expected.get(name), config.quantization, where)
        for name, one in pieces.items()
    ]
    return JoinedTensors(tuple(decoder), tuple(apart))


def packed_parameters(tensor: StoredTensor, part: str | None, bits: int) -> int:
    """Weights in a tensor of codes: as many as its bits hold.

    `part` is what the tensor stores of a matrix: `qweight`, `weight_packed`, `blocks`, or None for
    one code per number or two in a byte.
    """
    count = prod(tensor.shape)
    if part in _WORD_CODES:
        return count * _WORD_BITS // bits
    return count * 8 // bits if tensor.dtype == "U8" else count


def _is_apart(name: str, config: ModelConfig) -> bool:
    layer = _LAYER.match(name)
    beyond = layer is not None and int(layer[1]) >= config.num_hidden_layers
    mtp = beyond and int(layer[1] if layer else 0) < config.num_hidden_layers + config.mtp_layers
    return mtp or bool(_APART.match(name) or _BUFFER.search(name))


def _apart(tensor: StoredTensor) -> TensorSpec:
    return TensorSpec(
        name=tensor.name,
        shape=tensor.shape,
        stored_dtype=FLOATS.get(tensor.dtype, tensor.dtype.lower()),
        stored_bytes=tensor.stored_bytes,
        buffer=bool(_BUFFER.search(tensor.name)) or tensor.dtype not in FLOATS,
    )


def _joined(
    name: str,
    pieces: _Pieces,
    expected: tuple[int, ...] | None,
    packing: CheckpointQuantization | None,
    where: str,
) -> TensorSpec:
    packed = bool(pieces.parts) or any(one.dtype not in FLOATS for one in pieces.plain)
    if packed:
        return _packed(name, pieces, expected, packing, where)
    dtypes = {one.dtype for one in pieces.plain}
    if len(dtypes) > 1:
        raise InputError(f"{where}: the experts of '{name}' are stored as {', '.join(dtypes)}")
    return TensorSpec(
        name=name,
        shape=_plain_shape(pieces.plain, expected),
        stored_dtype=FLOATS[dtypes.pop()],
        stored_bytes=pieces.stored_bytes,
    )


def _plain_shape(
    stored: Sequence[StoredTensor], expected: tuple[int, ...] | None
) -> tuple[int, ...]:
    """Experts stacked, and the input first where a family's files have it so (GPT-2, gpt-oss)."""
    first = stored[0].shape
    if any(one.shape != first for one in stored):
        return (len(stored), *first, 0)
    shape = first
    if expected is not None and len(expected) == len(first) + 1:
        shape = (len(stored), *first)
    turned = (*shape[:-2], *reversed(shape[-2:]))
    return turned if turned == expected else shape


def _packed(
    name: str,
    pieces: _Pieces,
    expected: tuple[int, ...] | None,
    packing: CheckpointQuantization | None,
    where: str,
) -> TensorSpec:
    every = (*pieces.plain, *(one for part in pieces.parts.values() for one in part))
    strange = next((one for one in every if one.dtype not in FLOATS), every[0])
    if packing is None or expected is None:
        raise CapabilityError(
            f"{where}: tensor '{strange.name}' is stored as {strange.dtype}, which is not supported "
            f"without a quantization_config that says what it is; supported: {', '.join(FLOATS)}"
        )
    codes = [(one, None) for one in pieces.plain] + [
        (one, part) for part in (*_WORD_CODES, "blocks") for one in pieces.parts.get(part, ())
    ]
    count = sum(packed_parameters(one, part, packing.bits) for one, part in codes)
    if count != prod(expected):
        raise InputError(
            f"{where}: '{strange.name}' and its like hold {count} weights of {packing.bits} bits, "
            f"the configuration asks for {list(expected)}"
        )
    return TensorSpec(
        name=name,
        shape=expected,
        stored_dtype=format_name(packing),
        stored_bytes=pieces.stored_bytes,
    )
