"""What the files of a checkpoint would hold: from the configuration and its quantization alone."""

import re
from typing import Final

from llmprof.architectures.checkpoint_formats import format_name, stored_bytes
from llmprof.architectures.checkpoint_names import module_names
from llmprof.architectures.families import find_family
from llmprof.architectures.manifest import (
    LM_HEAD,
    buffer_specs,
    expected_tensors,
    float_spec,
    manifest_from_config,
)
from llmprof.architectures.mtp import mtp_buffers, mtp_copies, mtp_tensors
from llmprof.errors import CapabilityError
from llmprof.schema.checkpoint_format import CheckpointQuantization
from llmprof.schema.model import ModelConfig, TensorSpec, WeightManifest

PAPER_DTYPE: Final = "bf16"
"""Of the floats where the configuration names no dtype."""
_IN_LAYERS: Final = "model.layers."
_NEVER: Final = ("conv1d", "router", "eh_proj")
"""Modules that no method packs: convolutions, the choice of experts, the input of an MTP layer."""
_WORD_METHODS: Final = ("gptq", "awq")
"""They fill 32-bit words with codes of several rows."""
_MAX_PATTERN: Final = 200
_MAX_WILDCARDS: Final = 4


def paper_manifest(config: ModelConfig) -> WeightManifest:
    """Every tensor as the checkpoint would store it; multi-token prediction apart.

    Raises:
        CapabilityError: a pattern of excluded modules that is not supported, or a quantization that
            has nothing to pack.
    """
    dtype = config.torch_dtype or PAPER_DTYPE
    mtp = mtp_tensors(config)
    packing = config.quantization
    if packing is None:
        apart = [float_spec(name, shape, dtype) for name, shape in mtp.items()]
        plain = manifest_from_config(config, dtype)
        return plain.model_copy(update={"apart": (*apart, *_no_parameters(config, dtype))})
    excluded = [_pattern(text, anywhere=packing.method == "awq") for text in packing.excluded]
    family = find_family(config.model_type, config.name).model_type

    def spec(name: str, shape: tuple[int, ...]) -> TensorSpec:
        names = module_names(name.removesuffix(".weight"), family)
        packs = _may_pack(packing, name, shape) and _is_included(packing, names[0])
        if packs and not any(one.search(known) for one in excluded for known in names):
            return TensorSpec(
                name=name,
                shape=shape,
                stored_dtype=format_name(packing),
                stored_bytes=stored_bytes(packing, shape),
            )
        return float_spec(name, shape, dtype)

    tensors = [spec(name, shape) for name, shape in expected_tensors(config).items()]
    if all(one.stored_dtype != format_name(packing) for one in tensors):
        raise CapabilityError(
            f"the quantization of {config.name} ({packing.method}) packs none of its tensors, so what "
            "the files hold is not known"
        )
    return WeightManifest(
        origin="config",
        tensors=(*tensors, *buffer_specs(config)),
        apart=(
            *(spec(name, shape) for name, shape in mtp.items()),
            *_no_parameters(config, dtype),
        ),
    )


def _no_parameters(config: ModelConfig, dtype: str) -> list[TensorSpec]:
    """What is stored with the layers for multi-token prediction and counts no parameter."""
    copies = [float_spec(name, shape, dtype) for name, shape in mtp_copies(config).items()]
    fp32 = [float_spec(name, shape, "fp32") for name, shape in mtp_buffers(config).items()]
    return [spec.model_copy(update={"buffer": True}) for spec in (*copies, *fp32)]


def _may_pack(packing: CheckpointQuantization, name: str, shape: tuple[int, ...]) -> bool:
    """Projections within layers and the head; tables, norms and convolutions stay as they are."""
    module = name.removesuffix(".weight").rpartition(".")[2]
    if len(shape) < 2 or module in _NEVER or not name.startswith((_IN_LAYERS, LM_HEAD)):
        return False
    if packing.method == "mxfp4":
        return ".mlp.experts." in name and len(shape) == 3
    if ".bias" in name:
        return False
    whole_words = shape[-2] * packing.bits % 32 == 0
    return whole_words or packing.method not in _WORD_METHODS


def _is_included(packing: CheckpointQuantization, name: str) -> bool:
    """The list is of modules within a layer: it says nothing of the head."""
    within = name.startswith(_IN_LAYERS) and packing.included
    return not within or any(part in name for part in packing.included)


def _pattern(text: str, *, anywhere: bool = False) -> re.Pattern[str]:
    """A part of a module's name, with `*` for anything, or after `re:` an expression.

    `anywhere`: not whole parts between dots but any characters, as AutoAWQ and vLLM read AWQ's lists.

    Raises:
        CapabilityError: too long, or so nested that a match could take forever.
    """
    expression = text.removeprefix("re:")
    nested = re.search(r"\)\s*[*+?{]", expression) or expression.count("*") > _MAX_WILDCARDS
    if len(text) > _MAX_PATTERN or nested or expression.count("+") > _MAX_WILDCARDS:
        raise CapabilityError(f"the pattern {text[:60]!r} of excluded modules is not supported")
    try:
        if text.startswith("re:"):
            return re.compile(f"^(?:{expression})")
        if anywhere:
            return re.compile(re.escape(text))
        parts = (re.escape(part) for part in text.split("*"))
        return re.compile(rf"(?:^|\.){'.*'.join(parts)}(?:\.|$)")
    except re.error as error:
        raise CapabilityError(
            f"the pattern {text[:60]!r} of excluded modules is not supported: {error}"
        ) from error
