"""llmprof: where each millisecond of prefill and decode goes, against ceilings measured on this device."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from llmprof.frames import RunFrames

__version__ = "0.1.0"


def load(reference: "str | Path") -> "RunFrames":
    """A saved run as pandas frames: `llmprof.load("@last").steps`.

    Args:
        reference: a run file, `@last`, `@last~N`, the start of an id or its last 8 characters.

    Raises:
        llmprof.errors.InputError: none or several match, or the file is damaged.
    """
    from llmprof.frames import load_frames

    return load_frames(reference)
