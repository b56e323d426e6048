"""Linear attention: a state per sequence that every token updates and reads.

Source: Yang, Kautz, Hatamizadeh 2024, "Gated Delta Networks", equation 10, as a recurrence.
"""

from llmprof.costs.groups import StoredWeights
from llmprof.costs.ops import op_cost
from llmprof.costs.options import CostOptions
from llmprof.schema.cost import ByteTraffic, OpCost, StepShape
from llmprof.schema.layers import LinearAttention
from llmprof.schema.model import ModelConfig

_STATE_BYTES = 4
"""The recurrent state is kept in fp32."""
_CONV_BYTES = 2
_STATE_PRODUCTS = 3
"""Matrix products of a token with the state: what the key recalls, its correction, the answer."""


def state_bytes_per_sequence(model: ModelConfig, *, conv_columns_kept: int | None = None) -> int:
    """States of all linear layers: recurrent in fp32, and the last inputs of the convolution.

    transformers keeps as many columns as the convolution's kernel has; engines that keep one
    fewer, which is enough, say so by `conv_columns_kept`.
    """
    return sum(
        count * layer_state_bytes(layer.attention, conv_columns_kept=conv_columns_kept)
        for layer, count in model.kinds
        if isinstance(layer.attention, LinearAttention)
    )


def layer_state_bytes(shape: LinearAttention, *, conv_columns_kept: int | None = None) -> int:
    columns = shape.conv_kernel if conv_columns_kept is None else conv_columns_kept
    recurrent = shape.value_heads * shape.key_dim * shape.value_dim
    return recurrent * _STATE_BYTES + shape.conv_channels * columns * _CONV_BYTES


def state_ops(
    shape: LinearAttention,
    layers: int,
    stored: StoredWeights,
    step: StepShape,
    options: CostOptions,
) -> tuple[OpCost, OpCost]:
    """The short convolution and the update of the state, in so many layers.

    The state of a sequence is read once per step, unless it is new, and written once.
    """
    tokens = layers * step.new_tokens
    started = sum(one.count for one in step.sequences if one.cached_tokens)
    state = layers * layer_state_bytes(shape)
    per_head = shape.key_dim * shape.value_dim
    recurrence = 2.0 * _STATE_PRODUCTS * tokens * shape.value_heads * per_head
    convolution = 2.0 * tokens * shape.conv_channels * shape.conv_kernel
    mixed = 2 * tokens * shape.conv_channels * options.activation_bytes
    return (
        op_cost(
            "attention.convolution",
            calls=layers,
            traffic=ByteTraffic(weights=stored.read_by("attention.convolution"), activations=mixed),
            options=options,
            dense=convolution,
            causal=convolution,
        ),
        op_cost(
            "attention.state",
            calls=layers,
            traffic=ByteTraffic(
                weights=stored.read_by("attention.state"),
                kv_read=started * state,
                kv_write=step.num_sequences * state,
                activations=mixed,
            ),
            options=options,
            dense=recurrence,
            causal=recurrence,
        ),
    )
