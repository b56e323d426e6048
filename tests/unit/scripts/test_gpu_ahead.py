"""What the check does beside its parts: kernels compiled ahead, tests shared out, tilings compared."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.workload import CeilingNeeds
from scripts.gpu.figures import figures
from scripts.gpu.job import Job, read_found
from scripts.gpu.outcomes_of_tests import TestOutcomes
from scripts.gpu.side_by_side import processes
from scripts.gpu.summary import tilings_line

needs_triton = pytest.mark.skipif(
    not importlib.util.find_spec("triton"), reason="triton is not installed"
)


def test_every_test_is_some_processs_own_and_the_figure_is_of_all(tmp_path: Path) -> None:
    job, seen = Job("cuda:0", "llama-3.1-8b", tmp_path, 60.0, 0.0), []
    for number in range(3):
        items = [SimpleNamespace(nodeid=str(one)) for one in range(7)]
        outcomes = TestOutcomes(job, f"tests-{number}", number=number, of=3)
        outcomes.pytest_collection_modifyitems(items)
        seen += [one.nodeid for one in items]
    assert sorted(seen) == list("0123456")
    (figure, *_) = figures(read_found(tmp_path))
    assert "0 of 7 passed" in figure.words
    assert figure.status == "missed"


def test_as_many_compile_as_test() -> None:
    assert [processes(cores) for cores in (1, 4, 16, 64)] == [1, 2, 6, 6]


@needs_triton
def test_a_kernel_is_one_processs_own_and_compiled_once() -> None:
    from scripts.gpu.compile_ahead import Shares

    x = torch.empty(64, dtype=torch.bfloat16)
    starts = [
        ("a", (x, 1), {"warps": 4}),
        ("a", (x, 2), {"warps": 4}),
        ("a", (x, 16), {"warps": 4}),
        ("a", (x[1:], 16), {"warps": 4}),
        ("a", (x.float(), 16), {"warps": 4}),
        ("a", (x, 16), {"warps": 8}),
        ("b", (x, 16), {"warps": 8}),
    ]
    shares = [Shares(number, 3) for number in range(3)]
    taken = [[one.takes(*start) for one in shares] for start in starts]
    assert all(sum(own) == 1 for own in taken), "not alike to Triton: each is somebody's own"
    alike = [*starts, ("a", (x[8:], 32), {"warps": 4}), ("a", (x, 3), {"warps": 4})]
    assert not any(one.takes(*start) for start in alike for one in shares)


@needs_triton
def test_a_kernel_that_does_not_compile_is_named_and_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from triton.errors import TritonError
    from triton.runtime.jit import JITFunction

    from scripts.gpu.compile_ahead import Shares, compiled_for

    class PTXASError(TritonError):  # type: ignore[misc]
        error_message = "\n`ptxas` failed with error code 255\nand much more"

    compiled = []

    def refuse_one(self: SimpleNamespace, *args: object, grid: object, warmup: bool) -> None:
        if self.fn.__name__ == "wrong":
            raise PTXASError
        compiled.append(self.fn.__name__)

    monkeypatch.setattr(JITFunction, "run", refuse_one)
    shares = Shares(0, 1)
    with compiled_for(90, 132, shares):
        for name in ("right", "wrong", "after"):
            kernel = SimpleNamespace(fn=SimpleNamespace(__name__=name))
            JITFunction.run(kernel, 1, grid=(1,), warmup=False)
    assert compiled == ["right", "after"]
    assert (shares.compiled, len(shares.seen)) == (2, 3)
    words = "wrong does not compile: PTXASError: `ptxas` failed with error code 255\n"
    assert capsys.readouterr().err == words


@needs_triton
def test_what_tilings_and_live_ceilings_start_is_compiled_ahead_too() -> None:
    """Each would take a second where a part has fifteen; a process whose share is none compiles none."""
    from llmprof.engine.kernels.triton import weight_plan
    from scripts.gpu.compile_ahead import META, Shares, compiled_for, start_skinny
    from scripts.gpu.tilings import FORMATS, IN_USE, TRIED, start_each

    shares = Shares(-1, 1)
    with compiled_for(90, 132, shares):
        start_each(META)
    assert len(shares.seen) == len(TRIED) * len(FORMATS)
    assert weight_plan.ONE_ROW is IN_USE

    needs = CeilingNeeds(
        working_set_bytes=1 << 30,
        compute_dtype="bf16",
        skinny_rows=1,
        skinny_shapes=((4096, 4096), (128_256, 4096)),
        skinny_formats=(WeightFormat("int4", 32, symmetric=False), WeightFormat("bf16")),
    )
    shares = Shares(-1, 1)
    with compiled_for(90, 132, shares):
        start_skinny(needs, torch.bfloat16)
    assert shares.seen, "torch multiplies by floats, and kernels of ours by packed weights"
    assert all("fused_one_row" in one for one in shares.seen)


def test_the_fastest_tiling_beside_the_one_in_use() -> None:
    told = {"in_use": "8x128x4x3", "bf16": {"8x128x4x3": 3e12, "4x128x4x6": 4e12}, "int4": {}}
    line = tilings_line(told)
    assert "bf16 4x128x4x6 at 4.00 TB/s (in use: 75% of it)" in line
    assert "int4" not in line
