"""Which layers of a model attend in full, which within a window, and which keep a linear state."""

from typing import Final

from llmprof.architectures import limits
from llmprof.architectures.families import Family
from llmprof.architectures.fields import Fields
from llmprof.errors import CapabilityError

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"
LINEAR: Final = "linear_attention"


def windows(fields: Fields, family: Family, layers: int, positions: int) -> tuple[int | None, ...]:
    """The window of each layer in tokens; None: the layer sees the whole context.

    A window that is null, zero or negative is off, and so is one as long as the context; where the
    field is left out, the family's default holds. In Qwen models it is off unless switched on, and
    then holds from layer `max_window_layers` upwards.

    Raises:
        InputError: a field is missing or malformed.
        CapabilityError: kinds of layers that the family does not have.
    """
    types = stated_types(fields, layers)
    if types and not set(types) <= {FULL, SLIDING}:
        raise CapabilityError(
            f"{fields.where}: 'layer_types' names layers other than {FULL}, {SLIDING}"
        )
    window = _window(fields, family, positions)
    if window is None:
        return (None,) * layers
    return tuple(window if slides else None for slides in _slides(fields, family, layers, types))


def linear_layers(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Whether each layer of a hybrid model keeps a linear state instead of keys and values."""
    types = stated_types(fields, layers)
    if types:
        if not set(types) <= {FULL, LINEAR}:
            raise CapabilityError(
                f"{fields.where}: 'layer_types' names layers other than {FULL}, {LINEAR}"
            )
        return tuple(kind == LINEAR for kind in types)
    interval = fields.integer("full_attention_interval", limits.LAYERS)
    return tuple((index + 1) % interval != 0 for index in range(layers))


def stated_types(fields: Fields, layers: int) -> tuple[str, ...]:
    """`layer_types`, one for each layer; none where the field is left out."""
    value = fields.raw("layer_types")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(kind, str) for kind in value):
        fields.wrong("layer_types", "expected a list of texts")
    if len(value) != layers:
        fields.wrong("layer_types", f"expected one for each of the {layers} layers")
    return tuple(value)


def _window(fields: Fields, family: Family, positions: int) -> int | None:
    key = "sliding_window"
    switched = family.window == "switched"
    if switched and not fields.flag("use_sliding_window", default=False):
        return None
    if family.window == "none" or (not fields.has(key) and (fields.states(key) or not switched)):
        return None
    window = fields.integer(key, limits.ANY_INTEGER)
    return window if 0 < window < positions else None


def _slides(
    fields: Fields, family: Family, layers: int, types: tuple[str, ...]
) -> tuple[bool, ...]:
    if types:
        return tuple(kind == SLIDING for kind in types)
    match family.window:
        case "switched" if family.mlp == "qwen":
            raise CapabilityError(
                f"{fields.where}: 'use_sliding_window' without 'layer_types' is not supported: which "
                f"layers of a {family.model_type} model slide is not known"
            )
        case "switched":
            first = fields.integer("max_window_layers", limits.ANY_INTEGER)
            return tuple(index >= first for index in range(layers))
        case "by_layer_type":
            period = family.window_period or 1
            if fields.has("sliding_window_pattern"):
                period = fields.integer("sliding_window_pattern", limits.LAYERS)
            return tuple((index + 1) % period != 0 for index in range(layers))
        case _:
            return (True,) * layers
