"""Pictures of pages beside approved ones, with room for another rasterizer of fonts."""

import io
import os
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

GOLDEN: Final = Path(__file__).parent / "golden"
REGENERATE: Final = "LLMPROF_REGENERATE_GOLDEN"
SIZE: Final = (1300, 1000)
"""Of the first screen, in pixels."""
_KEPT: Final = (650, 500)
"""Size of an approved picture: small enough to keep, large enough to look at."""
_COMPARED: Final = (162, 125)
"""An eighth: where a letter is no more than a shade of grey, so that its rasterizer does not matter."""
MOST_MEAN: Final = 0.025
"""Mean absolute difference of all channels, of 1."""


def difference(one: Image.Image, other: Image.Image) -> float:
    """Mean absolute difference at an eighth of the size: 0 for equal pictures, 1 for black and white."""
    first, second = (_shade(picture) for picture in (one, other))
    return float(np.abs(first - second).mean())


def _shade(picture: Image.Image) -> NDArray[np.float64]:
    small = picture.convert("RGB").resize(_COMPARED, Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float64) / 255


def approved(name: str) -> Image.Image:
    return Image.open(GOLDEN / f"{name}.png")


def picture(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png))


def check(name: str, png: bytes) -> None:
    """Compare a screenshot of `SIZE` with the approved one, or approve it where that is asked for."""
    shown = picture(png)
    assert shown.size == SIZE
    if os.environ.get(REGENERATE):
        GOLDEN.mkdir(exist_ok=True)
        small = shown.convert("RGB").resize(_KEPT, Image.Resampling.LANCZOS)
        small.quantize(64).save(GOLDEN / f"{name}.png", optimize=True)
    found = difference(shown, approved(name))
    assert found <= MOST_MEAN, (
        f"{name}: {found:.3f} apart; look at it, approve it with {REGENERATE}=1"
    )
