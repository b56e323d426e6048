"""FLOPs and bytes of single ops, from shapes alone. A multiply-add is two FLOPs.

Traffic is the least that must move: each weight once per call, whatever the rows. Activations are
an op's inputs and outputs as if nothing were fused and nothing stayed in a cache.
"""

from llmprof.costs.groups import group_of_op
from llmprof.costs.options import CostOptions
from llmprof.costs.weight_formats import fits_fp8_arithmetic
from llmprof.schema.cost import ByteTraffic, OpCost, StepShape
from llmprof.schema.settings import AttentionKind


def linear_flops(rows: int, in_features: int, out_features: int) -> float:
    """`x W^T` with x [rows, in_features] and W [out_features, in_features]."""
    return 2.0 * rows * in_features * out_features


def attention_flops(pairs: int, query_heads: int, dims: int) -> float:
    """Of so many pairs of a query and a key, for every query head.

    `dims` is the key's size for the scores Q K^T, the value's for P V, their sum for both.
    """
    return 2.0 * pairs * query_heads * dims


def dense_pairs(shape: StepShape) -> int:
    """Pairs of the full rectangle: every new token with every cached and new one, per sequence."""
    return sum(s.count * s.new_tokens * (s.cached_tokens + s.new_tokens) for s in shape.sequences)


def causal_pairs(shape: StepShape) -> int:
    """Pairs that a causal mask leaves: the i-th of n new tokens attends to cached + i."""
    return sum(
        s.count * (s.new_tokens * s.cached_tokens + s.new_tokens * (s.new_tokens + 1) // 2)
        for s in shape.sequences
    )


def attended_pairs(shape: StepShape, *, window: int | None) -> int:
    """As `causal_pairs`, where a token sees at most `window` tokens, itself included."""
    if window is None:
        return causal_pairs(shape)
    return sum(
        s.count * (_seen(s.cached_tokens + s.new_tokens, window) - _seen(s.cached_tokens, window))
        for s in shape.sequences
    )


def _seen(tokens: int, window: int) -> int:
    """Pairs of a prompt of so many tokens."""
    full = min(tokens, window)
    return full * (full + 1) // 2 + (tokens - full) * window


def padded_pairs(shape: StepShape) -> int:
    """As `dense_pairs`, with every decoding sequence as long as the longest of them."""
    decodes = [one for one in shape.sequences if one.new_tokens == 1 and one.cached_tokens]
    longest = max((one.cached_tokens for one in decodes), default=0)
    return dense_pairs(shape) + sum(one.count * (longest - one.cached_tokens) for one in decodes)


def op_cost(
    name: str,
    *,
    calls: int,
    traffic: ByteTraffic,
    options: CostOptions,
    dense: float = 0.0,
    causal: float = 0.0,
    stored: float | None = None,
    attended: float | None = None,
    compute_dtype: str | None = None,
) -> OpCost:
    """One kind of op over all its calls; flash kernels skip what a causal mask or a window hides.

    `stored` is what standard attention computes, where that is more than `dense`; `attended` what
    a window leaves, where that is less than `causal`; `compute_dtype` that of the arithmetic, where
    it is not that of the activations.
    """
    needed = dense if stored is None else stored
    skipping = causal if attended is None else attended
    return OpCost(
        name=name,
        group=group_of_op(name),
        calls=calls,
        compute_dtype=compute_dtype or options.compute_dtype,
        flops=skipping if options.attention is AttentionKind.FLASH else needed,
        flops_dense=dense,
        flops_causal=causal,
        traffic=traffic,
    )


def linear(
    name: str,
    *,
    calls: int,
    rows: int,
    in_features: int,
    out_features: int,
    weight_bytes: float,
    options: CostOptions,
    packed_weights: float = 0,
    rows_each: float | None = None,
    fp8: bool = False,
) -> OpCost:
    """A projection: `weight_bytes` are those of all calls, bias included.

    `packed_weights` are the weights of all calls that are stored as codes; `rows_each` the rows of
    one product, where a call is several of them (experts); `fp8`: the weights are in fp8 with a scale
    per row, which may decide the dtype of the arithmetic.
    """
    flops = calls * linear_flops(rows, in_features, out_features)
    activations = calls * rows * (in_features + out_features) * options.activation_bytes
    in_fp8 = (
        fp8
        and options.fp8_arithmetic
        and fits_fp8_arithmetic(out_features, in_features)
        and _has_many_rows(rows_each or rows, options)
    )
    if in_fp8:
        activations += calls * rows * rounded_row_bytes(in_features)
        packed_weights = 0
    return op_cost(
        name,
        calls=calls,
        traffic=ByteTraffic(
            weights=weight_bytes,
            activations=activations,
            copies=unpacked_bytes(rows_each or rows, packed_weights, options),
        ),
        options=options,
        dense=flops,
        causal=flops,
        compute_dtype="fp8" if in_fp8 else None,
    )


def rounded_row_bytes(in_features: int) -> int:
    """A row of activations in fp8 and its scale in float32, written and read back by the product."""
    return 2 * (in_features + 4)


def unpacked_bytes(rows: float, packed_weights: float, options: CostOptions) -> float:
    """A product of many rows writes its weights as floats and reads them back."""
    if not _has_many_rows(rows, options):
        return 0.0
    return 2.0 * packed_weights * options.activation_bytes


def _has_many_rows(rows: float, options: CostOptions) -> bool:
    """More than are multiplied by packed weights as they are."""
    return options.packed_rows is not None and rows > options.packed_rows


def elementwise(
    name: str, *, calls: int, numbers: int, options: CostOptions, weight_bytes: float = 0.0
) -> OpCost:
    """An op without matrix work that reads and writes `numbers` activations per call."""
    activations = calls * numbers * options.activation_bytes
    return op_cost(
        name,
        calls=calls,
        traffic=ByteTraffic(weights=weight_bytes, activations=activations),
        options=options,
    )
