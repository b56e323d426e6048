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
_PACKED_LAYOUT: Final = "pack-quantized"
_PLAIN_LAYOUTS: Final = ("int-quantized", "float-quantized", "naive-quantized")
"""Of compressed-tensors: codes in words, and one code in a byte."""


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
    layout = fields.raw("checkpoint_format")
    if layout not in (None, "gptq", "gptq_v2"):
        raise CapabilityError(f"{fields.where}: the format '{str(layout)[:40]}' is not supported")
    head = () if fields.flag("lm_head", default=False) else ("lm_head",)
    return CheckpointQuantization(
        method="gptq",
        number="int",
        bits=fields.integer("bits", _BITS),
        group_size=_group_size(fields, "group_size"),
        symmetric=fields.flag("sym", default=True),
        excluded=(*head, *_left_out_by_rules(fields)),
        included=_modules_in_block(fields),
    )


def _left_out_by_rules(fields: Fields) -> tuple[str, ...]:
    """GPTQModel's `dynamic`: expressions after `-:` leave modules out, others give them other settings."""
    rules = fields.mapping("dynamic") if fields.has("dynamic") else {}
    for rule, settings in rules.items():
        if not rule.startswith("-:") and settings:
            raise CapabilityError(
                f"{fields.where}: 'dynamic' gives modules that match {rule[:60]!r} settings of their "
                "own, which is not supported"
            )
    return tuple(f"re:{rule.removeprefix('-:')}" for rule in rules if rule.startswith("-:"))


def _modules_in_block(fields: Fields) -> tuple[str, ...]:
    """Parts of the names of what is packed, in lists by turn or in one; none: every projection."""
    key = "modules_in_block_to_quantize"
    value = fields.raw(key) or ()
    if not isinstance(value, list | tuple):
        fields.wrong(key, "expected a list of texts, or of lists of them")
    turns = [one if isinstance(one, list) else [one] for one in value]
    found = [name for turn in turns for name in turn]
    if not all(isinstance(name, str) for name in found):
        fields.wrong(key, "expected a list of texts, or of lists of them")
    return tuple(found)


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
        excluded=(
            "lm_head",
            *_names(fields, "modules_to_not_convert"),
            *_names(fields, "ignored_layers"),  # as AutoFP8 spells it
        ),
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
    four, eight = (
        any(fields.flag(f"{prefix}load_in_{bits}bit", default=False) for prefix in ("", "_"))
        for bits in (4, 8)
    )
    if four is eight:
        raise CapabilityError(
            f"{fields.where}: {'both' if four else 'neither'} of load_in_4bit and load_in_8bit is set"
        )
    skipped = "llm_int8_skip_modules"
    return CheckpointQuantization(
        method="bitsandbytes",
        number="float" if four else "int",
        bits=4 if four else 8,
        group_size=_NF4_BLOCK if four else None,
        double_quantized=four and fields.flag("bnb_4bit_use_double_quant", default=False),
        excluded=_names(fields, skipped) if fields.has(skipped) else ("lm_head",),
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
    number, bits = scheme.text("type"), scheme.integer("num_bits", _BITS)
    if (number, bits) not in (("int", 4), ("int", 8), ("float", 8)):
        raise CapabilityError(f"{scheme.where}: weights of {bits} bits {number} are not supported")
    layout = (group if group.has("format") else fields).text("format")
    _check_layout(fields, layout)
    strategy = scheme.text("strategy") if scheme.has("strategy") else _strategy(scheme)
    inputs = group.raw("input_activations")
    static = isinstance(inputs, Mapping) and inputs.get("dynamic") is False
    return CheckpointQuantization(
        method="compressed-tensors",
        number="int" if number == "int" else "float",
        bits=bits,
        group_size=_group_size(scheme, "group_size") if strategy == "group" else None,
        block=_pair(scheme, "block_structure") if strategy == "block" else None,
        packed=layout == _PACKED_LAYOUT,
        per_tensor=strategy == "tensor",
        symmetric=scheme.flag("symmetric", default=True),
        input_scales=static,
        ordered=scheme.raw("actorder") == "group",
        excluded=_names(fields, "ignore"),
    )


def _check_layout(fields: Fields, layout: str) -> None:
    """Raises CapabilityError for a storage of other bytes: sparse, or made for one kernel."""
    if layout not in (_PACKED_LAYOUT, *_PLAIN_LAYOUTS):
        raise CapabilityError(f"{fields.where}: the format '{layout[:40]}' is not supported")
    sparsity = fields.raw("sparsity_config")
    kept = sparsity.get("format", "dense") if isinstance(sparsity, Mapping) else "dense"
    if kept != "dense":
        raise CapabilityError(
            f"{fields.where}: sparse weights ({str(kept)[:40]}) are not supported"
        )


def _strategy(scheme: Fields) -> str:
    """Of a scheme that names none: what its group size says."""
    if not scheme.has("group_size"):
        return "tensor"
    return "channel" if _group_size(scheme, "group_size") is None else "group"


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
