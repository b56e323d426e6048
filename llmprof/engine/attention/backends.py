"""Whose kernels attend to the cache, by `attention.backend` and by what works on the device."""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from llmprof.engine.attention.base import DecodeKernel
from llmprof.engine.attention.chunk_kernels import ChunkKernel, find_chunk_kernel
from llmprof.engine.attention.decode_kernels import find_decode_kernel
from llmprof.engine.attention.flashinfer_kernel import FlashInferKernel, flashinfer_trouble
from llmprof.engine.attention.kernel_trial import trial_trouble
from llmprof.engine.attention.needs import AttentionNeeds
from llmprof.engine.attention.prefill_kernels import PrefillKernel, find_prefill_kernel
from llmprof.engine.attention.step_kernels import StepKernel
from llmprof.engine.attention.varlen_api import (
    activate_flash_attention_3,
    find_varlen,
    restore_flash_attention,
)
from llmprof.engine.attention.varlen_kernel import VarlenKernel, varlen_trouble
from llmprof.engine.kernels.triton.available import triton_trouble
from llmprof.errors import CapabilityError
from llmprof.schema.settings import AttentionBackend

AUTO_ORDER: Final = (
    AttentionBackend.NATIVE,
    AttentionBackend.VARLEN,
    AttentionBackend.FLASHINFER,
)
"""What `auto` tries, best first; after the last, torch's kernels on views and gathered copies.

Ours come first since they alone do everything: every block size, every dtype of the cache, windows
and capped scores, so that a switch of the cache changes its bytes and not the author of the kernel
too; they split long contexts among programs at any batch; and one CUDA graph serves all lengths
without work on the host. FlashAttention 2 in torch wants pages of 256 tokens and does not split
them, so that it leaves most of a GPU idle at few sequences; FlashAttention 3 is a package of its own
and runs on Hopper alone, and switching it on changes torch's prefill as well. FlashInfer plans on
the host before every step and compiles its kernels on first use. The order rests on these limits,
not on measured times: `attention.backend` is there to measure them. It does not depend on a race at
the start, which would let two runs of the same settings differ.
"""
NO_LIBRARY: Final = "torch"


@dataclass(frozen=True, slots=True)
class CacheKernels:
    """That attend where anything is cached; all None: torch's own, on views and gathered copies."""

    backend: str
    """`native`, `varlen (FlashAttention 2)`, `flashinfer 0.6.14` or `torch`."""
    decode: DecodeKernel | None = None
    prefill: PrefillKernel | None = None
    chunk: ChunkKernel | None = None
    step: StepKernel | None = None
    fallback: str | None = None
    """Why they are not what `auto` tries first."""


def native_kernels(device: str) -> CacheKernels:
    """Our own for `cpu` or `cuda:N`, as far as there are some."""
    decode = find_decode_kernel(device)
    return CacheKernels(
        backend=NO_LIBRARY if decode is None else AttentionBackend.NATIVE.value,
        decode=decode,
        prefill=find_prefill_kernel(device),
        chunk=find_chunk_kernel(device),
    )


def choose_kernels(wanted: AttentionBackend, needs: AttentionNeeds) -> CacheKernels:
    """Those that are asked for, or the first that work.

    Raises:
        CapabilityError: what is asked for does not work here, with the reason.
    """
    restore_flash_attention()
    if wanted is AttentionBackend.AUTO:
        return _first_that_works(needs)
    found = _TRIED[wanted](needs)
    if isinstance(found, CacheKernels):
        return found
    raise CapabilityError(
        f"attention.backend={wanted.value} is not available on {needs.device}: {found}",
        remedy="Set attention.backend=auto, which takes what works",
    )


def _first_that_works(needs: AttentionNeeds) -> CacheKernels:
    """A CPU has kernels of ours or of torch, and needs no library's to be left out for a reason."""
    if not needs.on_gpu:
        return native_kernels(needs.device)
    reasons: list[str] = []
    for backend in AUTO_ORDER:
        found = _TRIED[backend](needs)
        if isinstance(found, CacheKernels):
            return replace(found, fallback="; ".join(reasons) or None)
        reasons.append(f"{backend.value}: {found}")
    return replace(native_kernels(needs.device), fallback="; ".join(reasons))


def _native(needs: AttentionNeeds) -> CacheKernels | str:
    kernels = native_kernels(needs.device)
    if kernels.decode is not None:
        return kernels
    if needs.on_gpu:
        return triton_trouble(needs.device) or "triton builds no kernels here"
    return "its kernels need a CPU that converts fp16 itself"


def _varlen(needs: AttentionNeeds) -> CacheKernels | str:
    if not needs.on_gpu:
        return "it is made of kernels for GPUs"
    api = find_varlen()
    if isinstance(api, str):
        return api
    fa3 = activate_flash_attention_3(needs.device)
    trouble = varlen_trouble(needs, flash_attention_3=fa3)
    kernel = None if trouble else VarlenKernel(api, flash_attention_3=fa3)
    if kernel is not None:
        trouble = trial_trouble(kernel, needs)
    if kernel is None or trouble is not None:
        restore_flash_attention()
        return trouble or ""
    return CacheKernels(f"{AttentionBackend.VARLEN.value} ({kernel.implementation})", step=kernel)


def _flashinfer(needs: AttentionNeeds) -> CacheKernels | str:
    if not needs.on_gpu:
        return "it is made of kernels for GPUs"
    if importlib.util.find_spec("flashinfer") is None:
        return "the package flashinfer-python is not installed"
    trouble = flashinfer_trouble(needs)
    if trouble is not None:
        return trouble
    try:
        module = importlib.import_module("flashinfer")
        version = importlib.metadata.version("flashinfer-python")
        kernel = FlashInferKernel(module, version, needs)
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"it cannot be imported ({lines[0][:200]})"
    trouble = trial_trouble(kernel, needs)
    if trouble is not None:
        return trouble
    return CacheKernels(f"{AttentionBackend.FLASHINFER.value} {version}", step=kernel)


_TRIED: Final[dict[AttentionBackend, Callable[[AttentionNeeds], CacheKernels | str]]] = {
    AttentionBackend.NATIVE: _native,
    AttentionBackend.VARLEN: _varlen,
    AttentionBackend.FLASHINFER: _flashinfer,
}
"""Kernels that were tried on the device, or why they do not work."""
