import json
import os
import subprocess
import sys

import pytest

from llmprof.errors import InputError
from llmprof.instruments import snapshot as module
from llmprof.instruments.snapshot import (
    fingerprint,
    llc_bytes,
    resolve_threads,
    snapshot,
    speed_variables,
)
from llmprof.schema.environment import Environment
from tests.unit.instruments.environments import a_cpu, a_gpu, an_environment


def test_this_machine_without_torch_or_numba_being_imported() -> None:
    program = (
        "import sys; from llmprof.instruments.snapshot import snapshot; "
        "environment = snapshot('cpu', 1); "
        "assert not {'torch', 'numba', 'pynvml'} & set(sys.modules); "
        "print(environment.model_dump_json(by_alias=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    environment = Environment.model_validate(json.loads(done.stdout))
    assert (environment.device, environment.gpu, environment.threads) == ("cpu", None, 1)
    assert environment.device_name == environment.cpu.model
    assert 1 <= environment.cpu.usable_cores <= environment.cpu.logical_cores
    assert 0 < environment.memory_available_bytes <= environment.memory_bytes
    assert next(iter(environment.versions)) == "torch"


def test_cuda_without_a_number_is_the_first_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "gpu_info", lambda device: a_gpu())
    environment = snapshot("cuda", 2)
    assert (environment.device, environment.device_name) == ("cuda:0", "NVIDIA H100")


def test_threads_are_all_usable_cores_or_what_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cpu_info", lambda: a_cpu(usable_cores=4))
    assert (resolve_threads(None), resolve_threads(3)) == (4, 3)
    with pytest.raises(InputError, match=r"threads is 5, .* may use 4 cores"):
        resolve_threads(5)


def test_last_level_cache_that_the_usable_cores_reach() -> None:
    # 12 cores over instances that 8 cores share: two of them.
    assert llc_bytes(an_environment(a_cpu())) == 2 * (32 << 20)
    assert llc_bytes(an_environment(a_cpu(usable_cores=1))) == 32 << 20
    assert llc_bytes(an_environment(a_cpu(caches=()))) == 0
    assert llc_bytes(an_environment(a_cpu(), a_gpu())) == 50 << 20
    assert llc_bytes(an_environment(a_cpu(), a_gpu(l2_bytes=None))) == 0


def test_only_variables_that_change_speed_are_kept() -> None:
    assert speed_variables(
        {
            "OMP_NUM_THREADS": "2",
            "KMP_AFFINITY": "granularity=fine",
            "CUDA_VISIBLE_DEVICES": "1",
            "OMP_TOOL_LIBRARIES": "/opt/tool.so",
            "CUDA_HOME": "/usr/local/cuda",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "PATH": "/bin",
        }
    ) == {
        "CUDA_VISIBLE_DEVICES": "1",
        "KMP_AFFINITY": "granularity=fine",
        "OMP_NUM_THREADS": "2",
    }


def test_the_snapshot_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "OMP_WAIT_POLICY", "passive")
    assert snapshot("cpu", 1).variables["OMP_WAIT_POLICY"] == "passive"


def test_the_fingerprint_is_of_the_kind_of_device_and_the_software() -> None:
    versions = {"torch": "2.13.0", "numpy": "2.4"}
    first = fingerprint(a_cpu(), a_gpu(), versions, 2)
    assert len(first) == 12
    assert int(first, 16) >= 0
    same = [
        fingerprint(a_cpu(), a_gpu(uuid="another card"), versions, 2),
        fingerprint(a_cpu(governor="performance"), a_gpu(), versions, 2),
        fingerprint(a_cpu(), a_gpu(), versions | {"numpy": "2.5"}, 2),
    ]
    assert same == [first] * 3
    others = {
        fingerprint(a_cpu(), None, versions, 2),
        fingerprint(a_cpu(usable_cores=6), a_gpu(), versions, 2),
        fingerprint(a_cpu(), a_gpu(power_limit_w=350.0), versions, 2),
        fingerprint(a_cpu(), a_gpu(), versions | {"torch": "2.14.0"}, 2),
        fingerprint(a_cpu(), a_gpu(), versions | {"flashinfer-python": "0.6.14"}, 2),
        fingerprint(a_cpu(), a_gpu(), versions, 4),
    }
    assert first not in others
    assert len(others) == 6
