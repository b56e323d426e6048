import pytest
import torch

from llmprof.engine.device import resolve_device
from llmprof.errors import CapabilityError

made_current: list[int] = []


@pytest.fixture(params=[0, 2])
def num_gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    number: int = request.param
    monkeypatch.setattr(torch.cuda, "is_available", lambda: number > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
    monkeypatch.setattr(torch.cuda, "set_device", made_current.append)
    made_current.clear()
    return number


def test_auto_takes_a_gpu_where_there_is_one(num_gpus: int) -> None:
    assert resolve_device("auto") == ("cuda:0" if num_gpus else "cpu")
    assert resolve_device("cpu") == "cpu"


@pytest.mark.parametrize(("name", "index"), [("cuda", 0), ("cuda:1", 1), ("cuda:2", 2)])
def test_a_gpu_by_number(name: str, index: int, num_gpus: int) -> None:
    if index < num_gpus:
        assert resolve_device(name) == f"cuda:{index}"
        assert made_current == [index], "graphs are captured on the current device"
    else:
        with pytest.raises(CapabilityError, match=f"'{name}'.*sees {num_gpus} CUDA"):
            resolve_device(name)
