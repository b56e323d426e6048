"""The switches of the engine that change FLOPs or bytes."""

from dataclasses import dataclass, field

from llmprof.architectures.gguf_types import GGML_TYPES
from llmprof.errors import CapabilityError
from llmprof.schema.cost import ExpertsRead, KvAccess
from llmprof.schema.settings import AttentionBackend, AttentionKind, KvLayout, RunConfig

_BYTES_PER_NUMBER = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1, "fp8": 1}

FLASHINFER_WORKSPACE_BYTES = 128 << 20
"""Where FlashInfer leaves partial results, as its documentation recommends; all of its wrappers share it."""

KV_SCALE_BYTES = 4
"""float32, one per token, KV head and K or V, beside keys and values in int8."""


def bytes_per_number(dtype: str) -> int:
    """Bytes of one number of an unpacked dtype: fp32, bf16, fp16, int8 or fp8.

    Raises:
        CapabilityError: a dtype that costs do not know.
    """
    if dtype not in _BYTES_PER_NUMBER:
        raise CapabilityError(
            f"the size of a number of dtype '{dtype}' is not known",
            remedy=f"Known: {', '.join(_BYTES_PER_NUMBER)}.",
        )
    return _BYTES_PER_NUMBER[dtype]


_GGML_BYTES = {
    kind.name.lower(): kind.block_bytes / kind.block_size for kind in GGML_TYPES.values()
}


def kv_bytes_per_number(kv_dtype: str, head_dim: int) -> float:
    """Of a key or value as it is cached, its share of the scale included.

    Formats of GGUF (q8_0, q4_0, ...) count their blocks: a cache in q8_0 takes 34 bytes per 32.

    Raises:
        CapabilityError: a dtype that costs do not know.
    """
    if kv_dtype in _GGML_BYTES and kv_dtype not in _BYTES_PER_NUMBER:
        return _GGML_BYTES[kv_dtype]
    scale = KV_SCALE_BYTES / head_dim if kv_dtype == "int8" else 0.0
    return bytes_per_number(kv_dtype) + scale


@dataclass(frozen=True, slots=True)
class CostOptions:
    """How a step is computed, apart from the model's shape and the step's."""

    attention: AttentionKind = AttentionKind.FLASH
    kv_layout: KvLayout = KvLayout.CONTIGUOUS
    kv_bytes_per_number: float = 2.0
    """Stored size of one number of K or V, its share of any scales included."""
    compute_dtype: str = "bf16"
    """Dtype of the arithmetic: the compute roof that an op is judged by."""
    activation_bytes: int = 2
    """Of one number of the hidden states, the logits included."""
    score_bytes: int = 2
    """Of one number of standard attention's score matrix."""
    block_tokens: int = 16
    """Tokens in one block of a paged cache."""
    kv_access: KvAccess = field(default_factory=KvAccess)
    """Whether attention reads the cache where it is, or a gathered copy."""
    packed_rows: int | None = None
    """Rows up to which a product reads packed weights as they are; with more it unpacks them to
    floats first. None: always as they are."""
    fp8_arithmetic: bool = False
    """Products of more rows with fp8 weights unpack nothing: they round their rows to fp8, and multiply
    in it."""
    fused_rows: int = 0
    """Rows up to which a product is one kernel with what lies around it (`costs.fusion`)."""
    experts_read: tuple[ExpertsRead, ...] = ()
    """Of steps that ran; steps of other sizes read as many as independent choices would on average."""
    row_buckets: tuple[int, ...] = ()
    """Rows that decode steps are padded to; empty where they run as they are."""
    tensor_parallel: int = 1
    """Devices that share out the model: work, weights and cache are then those of one of them, and
    what they exchange is an op of its own."""
    workspace_bytes: int = 0
    """That a library's attention holds as long as the model is there, whatever the step."""


def options_from(
    settings: RunConfig,
    *,
    compute_dtype: str,
    kv_dtype: str,
    head_dim: int,
    kv_access: KvAccess | None = None,
    packed_rows: int | None = None,
    fp8_arithmetic: bool = False,
    fused_rows: int = 0,
    experts_read: tuple[ExpertsRead, ...] = (),
    row_buckets: tuple[int, ...] = (),
    tensor_parallel: int = 1,
) -> CostOptions:
    """The options of a run whose dtypes have been resolved (`as_stored` and `as_weights` are not).

    `head_dim` is the model's: int8 keys and values have one scale for so many numbers. Without a
    cache `kv_dtype` says nothing and is not read. `kv_access`, `packed_rows`, `fp8_arithmetic`, `fused_rows`,
    `experts_read` and `row_buckets` are as the engine does it; by default nothing is gathered,
    unpacked, fused or padded, and tokens choose their experts independently. `tensor_parallel` is that of
    the weights that are to be costed.

    Raises:
        CapabilityError: a dtype whose size is not known.
    """
    number = bytes_per_number(compute_dtype)
    cached = settings.kv_cache.layout is not KvLayout.NONE
    return CostOptions(
        attention=settings.attention.kind,
        kv_layout=settings.kv_cache.layout,
        kv_bytes_per_number=kv_bytes_per_number(kv_dtype, head_dim) if cached else 0.0,
        compute_dtype=compute_dtype,
        activation_bytes=number,
        score_bytes=number,
        block_tokens=settings.kv_cache.block_tokens,
        kv_access=kv_access or KvAccess(),
        packed_rows=packed_rows,
        fp8_arithmetic=fp8_arithmetic,
        fused_rows=fused_rows,
        experts_read=experts_read,
        row_buckets=row_buckets,
        tensor_parallel=tensor_parallel,
        workspace_bytes=_workspace_bytes(settings),
    )


def _workspace_bytes(settings: RunConfig) -> int:
    """Of a backend that was asked for and has a cache to attend to.

    `auto` comes to FlashInfer on a GPU without Triton alone, which nobody knows before a run.
    """
    cached = settings.kv_cache.layout is not KvLayout.NONE
    fused = settings.attention.kind is AttentionKind.FLASH
    asked = settings.attention.backend is AttentionBackend.FLASHINFER
    return FLASHINFER_WORKSPACE_BYTES if asked and cached and fused else 0
