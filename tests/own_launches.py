"""Operators of ours that run on tensors without numbers, and the kernels that they would start."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

MULTIPROCESSORS = 132
"""Of an H200: they decide where sums are split among programs, which a second launch joins."""
NO_LAUNCH = ("aten.empty", "aten.new_empty")


class OwnOperators(TorchDispatchMode):
    """Counts what runs of `llmprof`; everything must be on the device by then.

    And launches: of each operator of ours as many as it makes (`own_launches`), of torch one for each
    operator that is no view; its products may take two, where a library splits their sums.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()
        self.launches = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func.namespace == "llmprof":
            tensors = [one for one in args if isinstance(one, torch.Tensor)]
            assert {one.device.type for one in tensors} == {"meta"}
            self.calls[func.overloadpacket.__name__] += 1
            self.launches += own_launches(func.overloadpacket.__name__, args)
        elif not func.is_view and not str(func).startswith(NO_LAUNCH):
            self.launches += 1
        return func(*args, **(kwargs or {}))


def own_launches(name: str, args: tuple[Any, ...]) -> int:
    """Kernels that an operator of ours starts on an H200, which is all that is left out here."""
    from torch._library.custom_ops import OPDEFS
    from triton.runtime.jit import JITFunction

    from llmprof.engine.kernels.triton import attention_decode, fused_products, weight_matvec

    started: list[object] = []

    def start(kernel: object, *_: object, **__: object) -> None:
        started.append(kernel)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JITFunction, "run", start)
        for module in (attention_decode, fused_products, weight_matvec):
            patch.setattr(module, "multiprocessors", lambda device: MULTIPROCESSORS)
        OPDEFS[f"llmprof::{name}"]._init_fn(*args)
    return len(started)
