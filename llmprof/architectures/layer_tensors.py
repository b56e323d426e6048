"""The tensors of one layer, from its shape: module name -> shape.

Projections are [out_features, in_features]; the experts of a layer are one tensor with the experts
first, however a file splits them. Source: the modeling files of Hugging Face transformers.
"""

from llmprof.schema.layers import (
    AttentionShape,
    DenseMlp,
    ExpertMlp,
    LatentAttention,
    LayerShape,
    LinearAttention,
    MlpShape,
    SoftmaxAttention,
)

Shapes = dict[str, tuple[int, ...]]


def layer_tensors(layer: LayerShape, hidden: int, *, norm_bias: bool = False) -> Shapes:
    """Every parameter of a layer without its prefix, in the order of the forward pass."""
    norms: Shapes = {}
    for name in layer.norms:
        norms |= norm(name, hidden, bias=norm_bias)
    first = dict(list(norms.items())[: 2 if norm_bias else 1])
    return (
        first | attention_tensors(layer.attention, hidden) | norms | mlp_tensors(layer.mlp, hidden)
    )


def attention_tensors(shape: AttentionShape, hidden: int) -> Shapes:
    match shape:
        case SoftmaxAttention():
            return _softmax(shape, hidden)
        case LatentAttention():
            return _latent(shape, hidden)
        case LinearAttention():
            return _linear(shape, hidden)


def mlp_tensors(shape: MlpShape, hidden: int) -> Shapes:
    match shape:
        case DenseMlp():
            return _dense("mlp", shape, hidden)
        case ExpertMlp():
            return _experts(shape, hidden)


def norm(name: str, size: int, *, bias: bool = False) -> Shapes:
    weight: Shapes = {f"{name}.weight": (size,)}
    return weight | {f"{name}.bias": (size,)} if bias else weight


def projection(name: str, rows: int, columns: int, *, bias: bool = False) -> Shapes:
    weight: Shapes = {f"{name}.weight": (rows, columns)}
    return weight | {f"{name}.bias": (rows,)} if bias else weight


def _softmax(shape: SoftmaxAttention, hidden: int) -> Shapes:
    queries = shape.query_heads * shape.key_dim * (2 if shape.output_gate else 1)
    keys, values = shape.kv_heads * shape.key_dim, shape.kv_heads * shape.value_dim
    at = "self_attn"
    shapes: Shapes = {}
    if shape.fused:
        total = queries + keys + values
        shapes |= projection(f"{at}.qkv_proj", total, hidden, bias=shape.qkv_bias)
    else:
        shapes |= projection(f"{at}.q_proj", queries, hidden, bias=shape.qkv_bias)
        if not shape.shares_cache:
            shapes |= projection(f"{at}.k_proj", keys, hidden, bias=shape.qkv_bias)
            if not shape.key_is_value:
                shapes |= projection(f"{at}.v_proj", values, hidden, bias=shape.qkv_bias)
    if shape.qk_norm:
        shapes |= norm(f"{at}.q_norm", shape.key_dim)
        if not shape.shares_cache:
            shapes |= norm(f"{at}.k_norm", shape.key_dim)
    if shape.sinks:
        shapes[f"{at}.sinks"] = (shape.query_heads,)
    outputs = shape.query_heads * shape.value_dim
    return shapes | projection(f"{at}.o_proj", hidden, outputs, bias=shape.output_bias)


def _latent(shape: LatentAttention, hidden: int) -> Shapes:
    at, heads = "self_attn", shape.query_heads
    queries = heads * (shape.nope_dim + shape.rope_dim)
    shapes: Shapes = {}
    if shape.q_lora_rank is None:
        shapes |= projection(f"{at}.q_proj", queries, hidden)
    else:
        shapes |= projection(f"{at}.q_a_proj", shape.q_lora_rank, hidden, bias=shape.bias)
        shapes |= norm(f"{at}.q_a_layernorm", shape.q_lora_rank)
        shapes |= projection(f"{at}.q_b_proj", queries, shape.q_lora_rank)
    latent = shape.kv_lora_rank
    shapes |= projection(
        f"{at}.kv_a_proj_with_mqa", latent + shape.rope_dim, hidden, bias=shape.bias
    )
    shapes |= norm(f"{at}.kv_a_layernorm", latent)
    shapes |= projection(f"{at}.kv_b_proj", heads * (shape.nope_dim + shape.value_dim), latent)
    return shapes | projection(f"{at}.o_proj", hidden, heads * shape.value_dim, bias=shape.bias)


def _linear(shape: LinearAttention, hidden: int) -> Shapes:
    at, heads = "linear_attn", shape.value_heads
    values = heads * shape.value_dim
    if shape.split_inputs:
        shapes = projection(f"{at}.in_proj_qkv", shape.conv_channels, hidden)
        shapes |= projection(f"{at}.in_proj_z", values, hidden)
        shapes |= projection(f"{at}.in_proj_b", heads, hidden)
        shapes |= projection(f"{at}.in_proj_a", heads, hidden)
    else:
        shapes = projection(f"{at}.in_proj_qkvz", shape.conv_channels + values, hidden)
        shapes |= projection(f"{at}.in_proj_ba", 2 * heads, hidden)
    shapes[f"{at}.conv1d.weight"] = (shape.conv_channels, 1, shape.conv_kernel)
    shapes |= {f"{at}.dt_bias": (heads,), f"{at}.A_log": (heads,)}
    shapes |= norm(f"{at}.norm", shape.value_dim)
    return shapes | projection(f"{at}.out_proj", hidden, values)


def _dense(at: str, shape: DenseMlp, hidden: int) -> Shapes:
    inner, bias = shape.intermediate_size, shape.bias
    shapes: Shapes = {}
    if shape.fused:
        shapes |= projection(f"{at}.gate_up_proj", 2 * inner, hidden, bias=bias)
    else:
        if shape.gated:
            shapes |= projection(f"{at}.gate_proj", inner, hidden, bias=bias)
        shapes |= projection(f"{at}.up_proj", inner, hidden, bias=bias)
    return shapes | projection(f"{at}.down_proj", hidden, inner, bias=bias)


def _experts(shape: ExpertMlp, hidden: int) -> Shapes:
    shapes = _dense("mlp", shape.dense_beside, hidden) if shape.dense_beside else {}
    shapes |= projection("mlp.router", shape.num_experts, hidden, bias=shape.router_bias)
    if shape.router_scales:
        shapes |= {
            "mlp.router.scale": (hidden,),
            "mlp.router.per_expert_scale": (shape.num_experts,),
        }
    routed = DenseMlp(intermediate_size=shape.intermediate_size, bias=shape.bias, fused=shape.fused)
    for name, one in _dense("mlp.experts", routed, hidden).items():
        shapes[name] = (shape.num_experts, *one)
    if shape.shared_intermediate_size:
        shared = DenseMlp(intermediate_size=shape.shared_intermediate_size)
        shapes |= _dense("mlp.shared_experts", shared, hidden)
        if shape.shared_gate:
            shapes |= projection("mlp.shared_expert_gate", 1, hidden)
    return shapes
