"""Checkpoints from the Hugging Face hub: configuration, tensors and tokenizer, nothing that runs."""

from pathlib import Path
from typing import Final

from llmprof.errors import InputError
from llmprof.schema.settings import WeightSource

_ON_PAPER: Final = ("config.json", "tokenizer.json")
_TENSORS: Final = ("model.safetensors.index.json", "model*.safetensors")
"""Not `*.safetensors`: some repositories keep a second copy in another layout."""


def download_snapshot(repository: str, weights: WeightSource) -> Path:
    """Folder in the hub's cache; with random weights without the tensors.

    HF_HUB_OFFLINE, HF_HOME and the login are those of the library `huggingface_hub`.

    Raises:
        InputError: unknown or closed repository, no network, or offline and not in the cache.
    """
    import huggingface_hub
    from huggingface_hub import errors

    # The library's HTTP client changed from version to version; its error is the base of this one.
    transport_error: type[Exception] = errors.HfHubHTTPError.__bases__[0]
    patterns = _ON_PAPER + (_TENSORS if weights is WeightSource.FILE else ())
    try:
        return Path(huggingface_hub.snapshot_download(repository, allow_patterns=list(patterns)))
    except (OSError, ValueError, transport_error) as error:
        reason, remedy = _explained(error)
        raise InputError(
            f"'{repository}' is no folder here, and cannot be had from the hub: {reason}",
            remedy=remedy,
        ) from error


def _explained(error: Exception) -> tuple[str, str]:
    """Reason and remedy."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return (
            "its owner must grant access",
            "Accept its terms on the hub and log in with `hf auth`",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return "there is no such repository, or it is private", "Check owner and name"
    if isinstance(error, errors.LocalEntryNotFoundError):
        return (
            "it is not in the local cache, and the hub cannot be reached or HF_HUB_OFFLINE is set",
            "Download it where there is a network, and give its folder",
        )
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__, "Try again, or download it by hand"
