"""FLOPs of torch operators: torch's own table and what it leaves out. A multiply-add is two.

Source of the argument orders: aten/src/ATen/native/native_functions.yaml of PyTorch.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import flex_attention
from torch.utils.flop_counter import flop_registry

Formula = Callable[..., int]
"""Called as torch calls its own: the operator's arguments, and `out_val` by keyword."""

_MATRIX_WORK = re.compile(
    r"(?<!o)mm(_|$)|gemm|linear|mat(mul|vec)|attention|attn|conv(olution|\d|_|$)|mv(_|$)|dot(_|$)"
)
_NO_MATRIX_WORK = re.compile(r"upsample|interpolate")


def formula_table() -> dict[object, Formula]:
    """Operator -> formula, with every formula that is registered with torch at this moment.

    torch's registry stays as it is: a profiler must not change what other counters count.
    """
    own = {
        getattr(namespace, name): formula
        for namespace, formulas in (
            (torch.ops.aten, _OWN),
            (torch.ops.llmprof, _KERNELS),
            (torch.ops.torch_attn, _VARLEN),
        )
        for name, formula in formulas.items()
        if hasattr(namespace, name)
    }
    in_place = {
        getattr(torch.ops.aten, f"{name}_"): flop_registry[getattr(torch.ops.aten, name)]
        for name in ("addmm", "baddbmm")
    }
    return {**flop_registry, **own, **in_place, flex_attention: _attention}


def looks_like_matrix_work(name: str) -> bool:
    """Whether an operator's name (`aten._weight_int8pack_mm`) says that it multiplies matrices."""
    return bool(_MATRIX_WORK.search(name)) and not _NO_MATRIX_WORK.search(name)


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> int:
    """Full rectangle of [batch, heads, rows, dims]; key and value may have fewer heads (GQA)."""
    batch, heads, rows, key_dim = query.shape
    return 2 * batch * heads * rows * key.shape[-2] * (key_dim + value.shape[-1])


def _linear(x: torch.Tensor, weight: torch.Tensor, *_: Any, **__: Any) -> int:
    """For x [..., in] and weight [out, in]."""
    return 2 * x.numel() * weight.shape[0]


def _matrix_product(x: torch.Tensor, weight: torch.Tensor, *_: Any, **__: Any) -> int:
    """For x [rows, in] and weight [in, out]."""
    return 2 * x.numel() * weight.shape[1]


def _packed_matrix_product(x: torch.Tensor, *_: Any, out_val: torch.Tensor, **__: Any) -> int:
    """For x [..., in] and a weight whose packed shape says nothing: the output has its width."""
    return 2 * x.numel() * out_val.shape[-1]


def _added_product(total: torch.Tensor, x: torch.Tensor, *_: Any, **__: Any) -> int:
    """For x [rows, in], whose product is added to total [rows, out]."""
    return 2 * x.numel() * total.shape[-1]


def _normed_product(
    x: torch.Tensor,
    _squares: torch.Tensor | None,
    _gains: torch.Tensor,
    _eps: float,
    _offset: float,
    codes: torch.Tensor,
    *_: Any,
    **__: Any,
) -> int:
    """For x [rows, in] and a weight of as many rows as `codes` has, gated afterwards or not."""
    return 2 * x.numel() * codes.shape[0]


def _decode_attention(
    query: torch.Tensor,
    _store: torch.Tensor,
    _scales: torch.Tensor | None,
    _block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    *_: Any,
    **__: Any,
) -> int:
    """For query [sequences, heads, head_dim], each with so many tokens: scores, then values.

    As of torch's own kernels the full rectangle, whatever a window lets it skip.
    """
    return 4 * int(context_lens.sum()) * query.shape[1] * query.shape[2]


def _chunk_attention(
    query: torch.Tensor,
    _store: torch.Tensor,
    _scales: torch.Tensor | None,
    _block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    *_: Any,
    **__: Any,
) -> int:
    """Full rectangles of query [rows, heads, head_dim], each sequence having as many rows."""
    rows = query.shape[0] // len(context_lens)
    return 4 * rows * int(context_lens.sum()) * query.shape[1] * query.shape[2]


def _capped_attention(queries: torch.Tensor, keys: torch.Tensor, *_: Any, **__: Any) -> int:
    """Full rectangle of queries [sequences, kv_heads, group, new, dim] and keys [.., tokens, dim]."""
    return 4 * queries.numel() * keys.shape[2]


def _varlen_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None,
    *args: Any,
    seqused_k: torch.Tensor | None = None,
    **_: Any,
) -> int:
    """Full rectangles of sequences of their own lengths, packed one after the other.

    query [tokens, heads, dims]; the lengths are differences of the cumulated ones, and of keys in a
    cache (`seqused_k`) as many as are used of each. Source: torch.nn.attention.varlen.
    """
    # parameters before it differ by version, and none of them is a tensor
    tensors = [one for one in args if isinstance(one, torch.Tensor)]
    used = tensors[0] if tensors else seqused_k
    cumulated = cu_seq_q if cu_seq_k is None else cu_seq_k
    key_lens = cumulated.diff() if used is None else used
    pairs = int((cu_seq_q.diff().long() * key_lens.long()).sum())
    return 2 * pairs * query.shape[1] * (query.shape[-1] + value.shape[-1])


def _flashinfer_attention(
    query: torch.Tensor,
    _store: torch.Tensor,
    bounds: torch.Tensor,
    context_lens: torch.Tensor,
    *_: Any,
    **__: Any,
) -> int:
    """Full rectangles of query [rows, heads, head_dim], each sequence having its rows and tokens."""
    pairs = int((bounds.diff().long() * context_lens.to(bounds.device).long()).sum())
    return 4 * pairs * query.shape[1] * query.shape[2]


def _varlen_attention_out(_out: torch.Tensor, *args: Any, **kwargs: Any) -> int:
    return _varlen_attention(*args, **kwargs)


def _prefill_attention(query: torch.Tensor, keys: torch.Tensor, *_: Any, **__: Any) -> int:
    """Full rectangle of query [rows, heads, head_dim] and keys [sequences, kv_heads, tokens, head_dim]."""
    return 4 * query.numel() * keys.shape[2]


def _added_matrix_product(
    _added: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *_: Any, **__: Any
) -> int:
    """For left [rows, in] or [batch, rows, in], and right [in, out], [batch, in, out] or [in]."""
    return 2 * left.numel() * (right.shape[-1] if right.dim() > 1 else 1)


def _matrix_vector(matrix: torch.Tensor, *_: Any, **__: Any) -> int:
    """For matrix [rows, in] and vector [in], or two vectors of one size."""
    return 2 * matrix.numel()


_VARLEN: Mapping[str, Formula] = {
    "_varlen_attn": _varlen_attention,
    "_varlen_attn_out": _varlen_attention_out,
}
"""There once torch.nn.attention.varlen has been imported."""

_KERNELS: Mapping[str, Formula] = {
    "matvec": _packed_matrix_product,
    "triton_matvec": _packed_matrix_product,
    "triton_matvec_add_": _added_product,
    "triton_normed_matvec": _normed_product,
    "triton_gated_matvec": _normed_product,
    "triton_added_matvec_": _added_product,
    "matmul": _linear,
    "decode_attention": _decode_attention,
    "triton_decode_attention": _decode_attention,
    "prefill_attention": _prefill_attention,
    "triton_chunk_attention": _chunk_attention,
    "flashinfer_attention": _flashinfer_attention,
    "capped_attention": _capped_attention,
}
"""Operators of the engine's own kernels, there once the engine has been imported."""

_OWN: Mapping[str, Formula] = {
    # torch's table lacks the CPU kernel, and older versions refuse fewer KV heads than query heads
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
    "_scaled_dot_product_cudnn_attention": _attention,
    "_scaled_dot_product_fused_attention_overrideable": _attention,
    "linear": _linear,
    "_weight_int8pack_mm": _linear,
    "_int_mm": _matrix_product,
    "_weight_int4pack_mm": _packed_matrix_product,
    "_weight_int4pack_mm_for_cpu": _packed_matrix_product,
    "_weight_int4pack_mm_with_scales_and_zeros": _packed_matrix_product,
    "_dyn_quant_matmul_4bit": _packed_matrix_product,
    "_addmm_activation": _added_matrix_product,
    "addbmm": _added_matrix_product,
    "addmv": _added_matrix_product,
    "addmv_": _added_matrix_product,
    "mv": _matrix_vector,
    "dot": _matrix_vector,
    "vdot": _matrix_vector,
}
