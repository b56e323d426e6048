"""Stand-ins for libraries of GPU attention: they check every argument, and compute on a CPU.

They take any dtype, so that what they give can be compared closely.
"""

import math
from typing import Any

import torch


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    seen: torch.Tensor,
    scale: float,
    cap: float | None = None,
) -> torch.Tensor:
    """query [rows, heads, dim]; keys and values [rows, tokens, kv_heads, dim]; seen [rows, tokens]."""
    group = query.shape[1] // keys.shape[2]
    keys, values = (one.float().repeat_interleave(group, dim=2) for one in (keys, values))
    scores = torch.einsum("rhd,rthd->rht", query.float(), keys) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    weights = scores.masked_fill(~seen.unsqueeze(1), -math.inf).softmax(-1)
    return torch.einsum("rht,rthd->rhd", weights, values).to(query.dtype)


def sequence_of_rows(bounds: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.searchsorted(bounds[1:].contiguous(), torch.arange(rows), right=True)


def paged(
    query: torch.Tensor,
    pages: tuple[torch.Tensor, torch.Tensor],
    bounds: torch.Tensor,
    lengths: torch.Tensor,
    tables: torch.Tensor,
    left: int,
    scale: float | None,
) -> torch.Tensor:
    """The last tokens of each sequence, in pages [tokens, kv_heads, dim]; `left`: seen before each."""
    rows = len(query)
    sequence = sequence_of_rows(bounds, rows)
    position = lengths[sequence] - bounds[sequence + 1] + torch.arange(rows)
    keys, values = (one[tables.long()[sequence]].flatten(1, 2) for one in pages)
    token = torch.arange(keys.shape[1])
    seen = token <= position.unsqueeze(1)
    if left >= 0:
        seen &= token >= position.unsqueeze(1) - left
    return attend(query, keys, values, seen, query.shape[2] ** -0.5 if scale is None else scale)


class FakeVarlen:
    """`torch.nn.attention.varlen.varlen_attn` with pages, as FlashAttention 2 or 3 takes them."""

    def __init__(self, *, flash_attention_3: bool = False) -> None:
        self.flash_attention_3 = flash_attention_3
        self.calls: list[dict[str, Any]] = []

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cu_seq_q: torch.Tensor,
        cu_seq_k: torch.Tensor | None,
        max_q: int,
        max_k: int,
        *,
        return_aux: object = None,
        scale: float | None = None,
        window_size: tuple[int, int] = (-1, -1),
        enable_gqa: bool = False,
        seqused_k: torch.Tensor | None = None,
        block_table: torch.Tensor | None = None,
        num_splits: int | None = None,
    ) -> torch.Tensor:
        assert seqused_k is not None
        assert block_table is not None
        rows, heads, dim = query.shape
        pages, page_tokens, kv_heads, key_dim = key.shape
        sequences = len(seqused_k)
        assert query.stride(2) == key.stride(3) == value.stride(3) == 1
        assert key.dtype is value.dtype is query.dtype
        assert value.shape == key.shape
        assert key.stride() == value.stride()
        assert key_dim == dim
        assert heads == kv_heads or enable_gqa
        assert heads % kv_heads == 0
        int32s = (cu_seq_q, seqused_k, block_table)
        assert all(one.dtype is torch.int32 and one.is_contiguous() for one in int32s)
        assert cu_seq_q.shape == (sequences + 1,)
        assert block_table.shape[0] == sequences
        assert int(block_table.min()) >= 0
        assert int(block_table.max()) < pages
        assert window_size[1] == 0
        lengths = cu_seq_q.diff()
        assert [int(cu_seq_q[0]), int(cu_seq_q[-1])] == [0, rows]
        assert max_q == int(lengths.max())
        assert max_k >= int(seqused_k.max())
        assert block_table.shape[1] * page_tokens >= int(seqused_k.max())
        if self.flash_attention_3:
            assert cu_seq_k is None
            assert num_splits is None
        else:
            assert cu_seq_k is not None
            assert cu_seq_k.dtype is torch.int32
            assert torch.equal(cu_seq_k.diff(), seqused_k)
            assert num_splits == 1
        self.calls.append({"window_size": window_size, "max_q": max_q, "max_k": max_k})
        return paged(query, (key, value), cu_seq_q, seqused_k, block_table, window_size[0], scale)


class _Wrapper:
    """What decode and prefill wrappers of FlashInfer have in common, in layout HND."""

    decodes: bool

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: torch.Tensor | None = None,
        paged_kv_indices_buffer: torch.Tensor | None = None,
        paged_kv_last_page_len_buffer: torch.Tensor | None = None,
    ) -> None:
        assert kv_layout == "HND"
        assert float_workspace_buffer.dtype is torch.uint8
        assert float_workspace_buffer.nbytes >= 128 << 20
        self.use_tensor_cores = use_tensor_cores
        self.graph = use_cuda_graph
        self.buffers = [
            paged_kv_indptr_buffer,
            paged_kv_indices_buffer,
            paged_kv_last_page_len_buffer,
        ]
        assert not use_cuda_graph or None not in self.buffers
        self.bounds: torch.Tensor | None = None
        self.given: dict[str, Any] = {}
        self.num_plans = 0

    def _plan(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        shape: tuple[int, int, int, int],
        given: dict[str, Any],
    ) -> None:
        on_host = (indptr, last_page_len)
        assert all(one.is_cpu and one.dtype is torch.int32 for one in (*on_host, indices))
        assert len(indptr) == len(last_page_len) + 1
        assert int(indptr[-1]) == len(indices)
        assert int(indptr.diff().min()) >= 1
        assert 1 <= int(last_page_len.min()) <= int(last_page_len.max()) <= shape[3]
        assert given["pos_encoding_mode"] == "NONE"
        self.shape, self.given = shape, given
        self.num_plans += 1
        if not self.graph:
            self.buffers = [indptr, indices, last_page_len]
            return
        kept_indptr, kept_indices, kept_last = self.buffers
        assert kept_indptr is not None
        assert kept_indices is not None
        assert kept_last is not None
        assert kept_indptr.shape == indptr.shape
        assert len(indices) <= len(kept_indices)
        kept_indptr.copy_(indptr)
        kept_indices[: len(indices)].copy_(indices)
        kept_last.copy_(last_page_len)

    def run(
        self, q: torch.Tensor, paged_kv_cache: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """Reads nothing of the plan but the buffers: all that a captured kernel would see."""
        assert self.num_plans, "plan goes before run"
        indptr, indices, last_page_len = (one for one in self.buffers if one is not None)
        heads, kv_heads, dim, page_tokens = self.shape
        rows = len(q)
        key, value = paged_kv_cache
        assert q.shape == (rows, heads, dim)
        assert q.dtype is self.given["q_data_type"]
        assert key.shape == value.shape
        assert key.shape[1:] == (kv_heads, page_tokens, dim)
        assert key.is_contiguous()
        assert key.dtype is self.given["kv_data_type"]
        bounds = torch.arange(rows + 1) if self.bounds is None else self.bounds
        sequence = sequence_of_rows(bounds, rows)
        counts = indptr.diff()[sequence]
        last = (counts - 1) * page_tokens + last_page_len[sequence]
        position = last - bounds[sequence + 1] + torch.arange(rows)
        place = indptr[sequence].unsqueeze(1) + torch.arange(len(indices))
        tables = indices[place.clamp(max=len(indices) - 1)].long()
        keys, values = (one[tables].transpose(2, 3).flatten(1, 2) for one in (key, value))
        token = torch.arange(keys.shape[1])
        seen = token <= position.unsqueeze(1)
        if self.given["window_left"] >= 0:
            seen &= token >= position.unsqueeze(1) - self.given["window_left"]
        cap = self.given["logits_soft_cap"]
        return attend(q, keys, values, seen, self.given["sm_scale"], cap)


class BatchDecodeWithPagedKVCacheWrapper(_Wrapper):
    def plan(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        **given: Any,
    ) -> None:
        shape = num_qo_heads, num_kv_heads, head_dim, page_size
        self._plan(indptr, indices, last_page_len, shape, given)


class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        **given: Any,
    ) -> None:
        assert given["causal"] is True
        assert qo_indptr.is_cpu
        assert qo_indptr.dtype is torch.int32
        self.bounds = qo_indptr
        shape = num_qo_heads, num_kv_heads, head_dim_qk, page_size
        self._plan(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, shape, given)
