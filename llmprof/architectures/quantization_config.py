"""`quantization_config` of a checkpoint, in the spellings of the tools that write it.

Source: transformers, utils/quantization_config.py; compressed-tensors, quant_config.py.
"""

from collections.abc import Callable, Mapping
from typing import Final

from llmprof.architectures import limits
from llmprof.architectures.fields import Fields
from llmprof.errors import CapabilityError
from llmprof.schema.checkpoint_format import CheckpointQuantization

_KEYS: Final = ("quantization_config", "compression_config")
_BITS: Final = limits.Limits(1, 16)
_GROUP: Final = limits.Limits(-1, 65_536)
_NF4_BLOCK: Final = 64


def parse_quantization(whole: Fields) -> CheckpointQuantization | None:
    """Found beside the shape, or in the `text_config` of a model with several parts.

    Raises:
        InputError: a malformed field.
        CapabilityError: a method whose storage is not known.
    """
    places = [whole]
    if whole.has("text_config"):
        places.append(whole.nested("text_config"))
    for place in places:
        for key in _KEYS:
            if place.has(key):
                return _parse(place.nested(key))
    return None


def _parse(fields: Fields) -> CheckpointQuantization:
    method = fields.raw("quant_method")
    parse = _METHODS.get(method) if isinstance(method, str) else None
    if parse is None:
        raise CapabilityError(
            f"{fields.where}: checkpoints quantized by '{str(method or 'unnamed')[:40]}' are not "
            f"supported; supported: {', '.join(_METHODS)}"
        )
    return parse(fields)


def _gptq(fields: Fields) -> CheckpointQuantization:
    return CheckpointQuantization(
        method="gptq",
        number="int",
        bits=fields.integer("bits", _BITS),
        group_size=_group_size(fields, "group_size"),
        symmetric=fields.flag("sym", default=True),
        excluded=("lm_head",) if not fields.flag("lm_head", default=False) else (),
    )


def _awq(fields: Fields) -> CheckpointQuantization:
    bits = "bits" if fields.has("bits") else "w_bit"
    group = "group_size" if fields.has("group_size") else "q_group_size"
    return CheckpointQuantization(
        method="awq",
        number="int",
        bits=fields.integer(bits, _BITS),
        group_size=_group_size(fields, group),
        symmetric=not fields.flag("zero_point", default=True),
        excluded=("lm_head", *_names(fields, "modules_to_not_convert")),
    )


def _fp8(fields: Fields) -> CheckpointQuantization:
    """DeepSeek and Qwen: blocks with an fp32 scale, the head left as it is."""
    block = fields.raw("weight_block_size")
    rows, columns = (None, None) if block is None else _pair(fields, "weight_block_size")
    scheme = fields.raw("activation_scheme")
    return CheckpointQuantization(
        method="fp8",
        number="float",
        bits=8,
        block=None if rows is None or columns is None else (rows, columns),
        per_tensor=block is None,
        input_scales=scheme == "static",
        excluded=("lm_head", *_names(fields, "modules_to_not_convert")),
    )


def _mxfp4(fields: Fields) -> CheckpointQuantization:
    return CheckpointQuantization(
        method="mxfp4",
        number="float",
        bits=4,
        group_size=32,
        excluded=_names(fields, "modules_to_not_convert"),
    )


def _bitsandbytes(fields: Fields) -> CheckpointQuantization:
    four = fields.flag("load_in_4bit", default=False) or fields.flag("_load_in_4bit", default=False)
    return CheckpointQuantization(
        method="bitsandbytes",
        number="float" if four else "int",
        bits=4 if four else 8,
        group_size=_NF4_BLOCK if four else None,
        double_quantized=four and fields.flag("bnb_4bit_use_double_quant", default=False),
        excluded=_names(fields, "llm_int8_skip_modules") or ("lm_head",),
    )


def _compressed(fields: Fields) -> CheckpointQuantization:
    """One group of modules with one scheme; several schemes in one checkpoint are refused."""
    groups = fields.nested("config_groups")
    names = list(fields.mapping("config_groups"))
    if len(names) != 1:
        raise CapabilityError(
            f"{fields.where}: {len(names)} config_groups are not supported, one is"
        )
    group = groups.nested(names[0])
    if _names(group, "targets") not in ((), ("Linear",)):
        raise CapabilityError(f"{group.where}: targets other than Linear are not supported")
    scheme = group.nested("weights")
    strategy = scheme.text("strategy") if scheme.has("strategy") else "tensor"
    number, bits = scheme.text("type"), scheme.integer("num_bits", _BITS)
    if (number, bits) not in (("int", 4), ("int", 8), ("float", 8)):
        raise CapabilityError(f"{scheme.where}: weights of {bits} bits {number} are not supported")
    layout = group if group.has("format") else fields
    inputs = group.raw("input_activations")
    static = isinstance(inputs, Mapping) and inputs.get("dynamic") is False
    return CheckpointQuantization(
        method="compressed-tensors",
        number="int" if number == "int" else "float",
        bits=bits,
        group_size=_group_size(scheme, "group_size") if strategy == "group" else None,
        block=_pair(scheme, "block_structure") if strategy == "block" else None,
        packed=layout.text("format") == "pack-quantized",
        per_tensor=strategy == "tensor",
        symmetric=scheme.flag("symmetric", default=True),
        input_scales=static,
        excluded=_names(fields, "ignore"),
    )


def _group_size(fields: Fields, key: str) -> int | None:
    """-1: a whole row is one group."""
    size = fields.integer(key, _GROUP)
    if size == 0:
        fields.wrong(key, "expected -1 or a number of weights")
    return None if size < 0 else size


def _pair(fields: Fields, key: str) -> tuple[int, int]:
    value = fields.raw(key)
    if not isinstance(value, list) or len(value) != 2:
        fields.wrong(key, "expected two whole numbers")
    rows, columns = (Fields({key: one}, fields.where).integer(key, limits.HIDDEN) for one in value)
    return rows, columns


def _names(fields: Fields, key: str) -> tuple[str, ...]:
    value = fields.raw(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        fields.wrong(key, "expected a list of texts")
    return tuple(value)


_METHODS: Final[Mapping[str, Callable[[Fields], CheckpointQuantization]]] = {
    "gptq": _gptq,
    "awq": _awq,
    "compressed-tensors": _compressed,
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
}
