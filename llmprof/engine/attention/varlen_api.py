"""What the installed torch can do in `torch.nn.attention.varlen`: asked here and nowhere else.

Its parameters came one by one, and nightly builds had others in between: the signature is asked, not
a version.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.nn import attention as torch_attention

_NEEDED: Final = ("scale", "window_size", "seqused_k", "block_table")
_FA3: Final = "FA3"
_FA3_MODULE: Final = "flash_attn_interface"
"""Where torch's `register_flash_attention_fa3` looks for FlashAttention 3."""
_HOPPER: Final = 9
"""Major compute capability; FlashAttention 3 runs on no other."""


@dataclass(frozen=True, slots=True)
class VarlenApi:
    attend: Callable[..., Any]
    """`varlen_attn`."""
    parameters: frozenset[str]
    """That it takes."""


def find_varlen() -> VarlenApi | str:
    """The function of the installed torch, or why it cannot be used, as the end of a sentence."""
    try:
        module = importlib.import_module("torch.nn.attention.varlen")
        attend = module.varlen_attn
    except (ImportError, AttributeError, RuntimeError) as error:
        return f"torch {torch.__version__} has no torch.nn.attention.varlen ({error})"
    parameters = frozenset(inspect.signature(attend).parameters)
    missing = [name for name in _NEEDED if name not in parameters]
    if missing:
        return f"varlen_attn of torch {torch.__version__} has no {' and no '.join(missing)}"
    return VarlenApi(attend, parameters)


def activate_flash_attention_3(device: str) -> bool:
    """Have torch use FlashAttention 3 in this process, where it is installed and the GPU runs it.

    It then does `scaled_dot_product_attention` too. torch leaves this choice to programs: see
    `torch.nn.attention.activate_flash_attention_impl`.
    """
    activate = getattr(torch_attention, "activate_flash_attention_impl", None)
    if activate is None or not _runs_flash_attention_3(device):
        return False
    if _active() == _FA3:
        return True
    try:
        activate(_FA3)
    except (ImportError, RuntimeError, ValueError, OSError):
        return False
    return True


def restore_flash_attention() -> None:
    """Undo it, for a run with other kernels in the same process."""
    if _active() == _FA3:
        torch_attention.restore_flash_attention_impl()


def _runs_flash_attention_3(device: str) -> bool:
    if importlib.util.find_spec(_FA3_MODULE) is None:
        return False
    return torch.cuda.get_device_capability(device)[0] == _HOPPER


def _active() -> str | None:
    current = getattr(torch_attention, "current_flash_attention_impl", None)
    return None if current is None else current()
