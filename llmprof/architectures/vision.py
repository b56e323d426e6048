"""Image encoders beside a decoder, on paper.

Source: transformers, modeling_siglip.py and modeling_gemma3.py (SigLIP with a projection).
"""

from llmprof.architectures import limits
from llmprof.architectures.fields import Fields
from llmprof.schema.model import VisionTower

_SIGLIP = "siglip_vision_model"
_CHANNELS = 3


def parse_vision(whole: Fields, hidden_size: int) -> VisionTower | None:
    """The tower of a configuration, and its parameters where its kind is known.

    Raises:
        InputError: a field of a known kind is missing or malformed.
    """
    if not whole.has("vision_config"):
        return None
    tower = whole.nested("vision_config")
    kind = tower.text("model_type") if tower.has("model_type") else "unnamed"
    known = kind == _SIGLIP and whole.raw("model_type") == "gemma3"
    return VisionTower(model_type=kind, parameters=_siglip(tower, hidden_size) if known else None)


def _siglip(tower: Fields, text_hidden: int) -> int:
    """Patches and positions, layers with biases everywhere, and Gemma's projection."""
    hidden = tower.integer("hidden_size", limits.HIDDEN)
    inner = tower.integer("intermediate_size", limits.INTERMEDIATE)
    patch = tower.integer("patch_size", limits.HEAD_DIM)
    side = tower.integer("image_size", limits.HIDDEN) // patch
    embeddings = (_CHANNELS * patch**2 + 1 + side**2) * hidden
    attention = 4 * (hidden + 1) * hidden
    feed_forward = (hidden + 1) * inner + (inner + 1) * hidden
    norms = 2 * 2 * hidden
    layers = tower.integer("num_hidden_layers", limits.LAYERS)
    projection = hidden * text_hidden + hidden
    return embeddings + layers * (attention + feed_forward + norms) + 2 * hidden + projection
