import pytest
import torch

from llmprof.instruments.checks.matmul import judge_matmul, matmul_rates
from tests.unit.instruments.environments import a_cpu, an_environment

ENVIRONMENT = an_environment(a_cpu(isa=("avx2", "avx512_vnni", "amx_bf16")))


def test_every_dtype_with_its_rate_against_fp32() -> None:
    check = judge_matmul({"fp32": 1e11, "bf16": 4e11, "fp16": 1e11, "int8": None}, ENVIRONMENT)
    assert check.status == "ok"
    for words in ("fp32 100 GFLOP/s", "bf16 4.0 x", "int8 none", "avx512_vnni, amx_bf16"):
        assert words in check.detail
    assert "avx2" not in check.detail


def test_a_dtype_on_a_reference_path_is_a_warning() -> None:
    # A Zen 5 without AVX512-FP16: 1.2 GFLOP/s in fp16 against 110 in fp32.
    check = judge_matmul({"fp32": 1.1e11, "bf16": 4.5e11, "fp16": 1.2e9}, ENVIRONMENT)
    assert check.status == "warn"
    assert "fp16 without a fast path" in check.detail
    assert "bf16 without" not in check.detail
    assert check.remedy == "Avoid fp16 on this CPU"


def test_the_rates_of_this_machine() -> None:
    threads = torch.get_num_threads()
    rates = matmul_rates()
    assert list(rates) == ["fp32", "bf16", "fp16", "int8"]
    assert rates["fp32"] is not None
    assert rates["fp32"] > 1e8
    assert torch.get_num_threads() == threads


def test_a_dtype_that_torch_refuses_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(left: object, right: object) -> None:
        raise RuntimeError("not implemented for 'Char'")

    monkeypatch.setattr(torch, "_int_mm", refuse)
    assert matmul_rates()["int8"] is None
