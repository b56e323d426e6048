"""How a checkpoint says that its weights are packed (`quantization_config`)."""

from typing import Literal

from pydantic import PositiveInt

from llmprof.schema.record import Record

QuantMethod = Literal["gptq", "awq", "compressed-tensors", "fp8", "mxfp4", "bitsandbytes"]


class CheckpointQuantization(Record):
    method: QuantMethod
    number: Literal["int", "float"]
    bits: PositiveInt
    group_size: PositiveInt | None = None
    """Adjacent weights of a row that share a scale; None: one scale per row, tensor or block."""
    block: tuple[PositiveInt, PositiveInt] | None = None
    """Rows and columns that share a scale (fp8)."""
    packed: bool = True
    """Codes of less than a byte, or of a byte where the tool packs those too, lie in int32 words."""
    per_tensor: bool = False
    """One scale for the whole matrix."""
    symmetric: bool = True
    """Without zero points."""
    double_quantized: bool = False
    """bitsandbytes: the scales themselves in 8 bits."""
    input_scales: bool = False
    """A stored scale of the activations (static quantization)."""
    ordered: bool = False
    """compressed-tensors: the group of each column is stored, since groups are no neighbours."""
    excluded: tuple[str, ...] = ()
    """Modules left in floats, as the file names them: a part of a name, `*` patterns or `re:` expressions."""
    included: tuple[str, ...] = ()
    """Parts of the names of the only modules that are packed (gptq); empty: every projection."""
