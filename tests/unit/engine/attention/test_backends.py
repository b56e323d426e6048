"""Which kernels a setting and a device lead to, and what is said where they are not the first choice."""

import contextlib
import importlib
import importlib.metadata
import inspect
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.nn import attention as torch_attention

from llmprof.engine.attention import AttentionNeeds, ScoreRule, backends, varlen_api
from llmprof.engine.attention.backends import choose_kernels
from llmprof.engine.attention.varlen_api import VarlenApi, find_varlen
from llmprof.errors import CapabilityError
from llmprof.schema.settings import AttentionBackend
from tests import attention_libraries
from tests.attention_libraries import FakeVarlen

AUTO, NATIVE = AttentionBackend.AUTO, AttentionBackend.NATIVE
VARLEN, FLASHINFER = AttentionBackend.VARLEN, AttentionBackend.FLASHINFER


class Gpu(AttentionNeeds):
    """Says that it is on a GPU; its tensors are on the CPU."""

    on_gpu = True


def needs(kind: type[AttentionNeeds] = Gpu, **given: object) -> AttentionNeeds:
    fields: dict[str, object] = {
        "device": "cpu",
        "dtype": torch.bfloat16,
        "stored": torch.bfloat16,
        "num_heads": 8,
        "num_kv_heads": 2,
        "head_dim": 64,
        "block_tokens": 256,
        **given,
    }
    return kind(**fields)  # type: ignore[arg-type]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute capability 8.0, where Triton builds nothing; libraries are stand-ins on the CPU."""
    monkeypatch.setattr(backends, "find_decode_kernel", lambda device: None)
    monkeypatch.setattr(backends, "triton_trouble", lambda device: "gcc is not installed")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    fake = FakeVarlen()
    api = VarlenApi(fake, frozenset(inspect.signature(fake.__call__).parameters))
    monkeypatch.setattr(backends, "find_varlen", lambda: api)


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> None:
    found, version = importlib.util.find_spec, importlib.metadata.version
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: object() if name == "flashinfer" else found(name)
    )
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "0.6" if "flash" in name else version(name)
    )
    monkeypatch.setitem(sys.modules, "flashinfer", attention_libraries)


def test_on_a_cpu_auto_is_native_without_a_word() -> None:
    chosen = choose_kernels(AUTO, needs(AttentionNeeds))
    assert chosen.backend == "native"
    assert chosen.decode is not None
    assert chosen.decode.name == "llmprof.decode_attention"
    assert chosen.step is None
    assert chosen.fallback is None
    assert choose_kernels(NATIVE, needs(AttentionNeeds)).backend == "native"


@pytest.mark.parametrize("wanted", [VARLEN, FLASHINFER])
def test_on_a_cpu_libraries_for_gpus_are_refused(wanted: AttentionBackend) -> None:
    with pytest.raises(CapabilityError, match=f"={wanted.value} is not available on cpu"):
        choose_kernels(wanted, needs(AttentionNeeds))


def test_on_a_gpu_our_own_come_first() -> None:
    assert choose_kernels(AUTO, needs()).backend == "native"
    assert choose_kernels(AUTO, needs()).fallback is None


@pytest.mark.usefixtures("gpu")
def test_what_does_not_work_is_skipped_and_named() -> None:
    chosen = choose_kernels(AUTO, needs())
    assert chosen.backend == "varlen (FlashAttention 2)"
    assert chosen.step is not None
    assert (chosen.decode, chosen.chunk, chosen.prefill) == (None, None, None)
    assert chosen.fallback == "native: gcc is not installed"


@pytest.mark.usefixtures("gpu", "flashinfer")
def test_the_next_one_where_pages_do_not_fit() -> None:
    chosen = choose_kernels(AUTO, needs(block_tokens=16))
    assert chosen.backend == "flashinfer 0.6"
    assert chosen.fallback == (
        "native: gcc is not installed; "
        "varlen: FlashAttention 2 takes pages of 256 tokens, and blocks have 16"
    )


@pytest.mark.usefixtures("gpu")
def test_torch_alone_where_nothing_works() -> None:
    chosen = choose_kernels(AUTO, needs(stored=torch.int8))
    assert chosen.backend == "torch"
    assert (chosen.decode, chosen.step) == (None, None)
    assert chosen.fallback == (
        "native: gcc is not installed; "
        "varlen: it reads keys and values in the dtype of the query, and these are int8; "
        "flashinfer: the package flashinfer-python is not installed"
    )


@pytest.mark.usefixtures("gpu", "flashinfer")
@pytest.mark.parametrize(
    ("wanted", "given", "reason"),
    [
        (NATIVE, {}, "gcc is not installed"),
        (VARLEN, {"dtype": torch.float32}, "it computes in 16 bits, and this run in float32"),
        (VARLEN, {"block_tokens": None}, "pages of 256 tokens, and the cache is contiguous"),
        (VARLEN, {"head_dim": 260}, "heads of at most 256 numbers, not 260"),
        (VARLEN, {"rules": (ScoreRule(cap=50.0),)}, "it does not cap scores"),
        (FLASHINFER, {"head_dim": 80}, "it has no kernel for heads of 80 numbers"),
        (FLASHINFER, {"stored": torch.int8}, "it has no kernel for keys and values in int8"),
    ],
)
def test_what_is_asked_for_and_cannot_be_is_one_line(
    wanted: AttentionBackend, given: dict[str, object], reason: str
) -> None:
    asked = needs(Gpu, **given)
    with pytest.raises(CapabilityError) as refused:
        choose_kernels(wanted, asked)
    assert refused.value.exit_code == 7
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("gpu", "flashinfer")
def test_flashinfer_reads_fp8() -> None:
    chosen = choose_kernels(FLASHINFER, needs(stored=torch.float8_e4m3fn, block_tokens=16))
    assert chosen.backend == "flashinfer 0.6"
    assert chosen.fallback is None


@pytest.mark.usefixtures("gpu")
def test_a_library_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())

    def breaks(name: str) -> object:
        raise ImportError("libcudart.so.13: cannot open shared object file\nmore")

    monkeypatch.setattr(importlib, "import_module", breaks)
    with pytest.raises(CapabilityError, match=r"cannot be imported \(libcudart.so.13: .* file\)$"):
        choose_kernels(FLASHINFER, needs())


def test_a_torch_without_block_tables_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def varlen_attn(query: object, *, scale: object = None, window_size: object = None) -> None: ...

    module = SimpleNamespace(varlen_attn=varlen_attn)
    monkeypatch.setattr(importlib, "import_module", lambda name: module)
    found = find_varlen()
    assert isinstance(found, str)
    assert found.endswith("has no seqused_k and no block_table")
    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace())
    found = find_varlen()
    assert isinstance(found, str)
    assert "has no torch.nn.attention.varlen" in found


@pytest.mark.usefixtures("gpu")
def test_flash_attention_3_on_hopper_only_while_it_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads any page, and is gone again for the next run with other kernels."""
    active: list[str] = []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(
        torch_attention, "current_flash_attention_impl", lambda: active[-1] if active else None
    )
    monkeypatch.setattr(torch_attention, "activate_flash_attention_impl", active.append)
    monkeypatch.setattr(torch_attention, "restore_flash_attention_impl", active.clear)
    fake = FakeVarlen(flash_attention_3=True)
    api = VarlenApi(fake, frozenset(inspect.signature(fake.__call__).parameters))
    monkeypatch.setattr(backends, "find_varlen", lambda: api)
    assert choose_kernels(VARLEN, needs(block_tokens=16)).backend == "varlen (FlashAttention 3)"
    assert active == ["FA3"]
    with contextlib.suppress(CapabilityError):
        choose_kernels(NATIVE, needs())
    assert not active
    assert not varlen_api.activate_flash_attention_3("cpu") or active
