"""Counters of Nsight Compute: read as it writes them, and compared with the counts of a run."""

import re
from pathlib import Path

import pytest

from llmprof.analysis.ncu import compare_with_counters, dram_bytes_of, hardware_flops_of
from llmprof.cli.app import execute
from llmprof.errors import InputError
from llmprof.schema.cost import Phase
from llmprof.store.ncu_csv import ProfiledKernel, read_ncu_csv
from llmprof.store.runs import save_run
from tests.records import a_report, a_run_record

TENSOR = "sm__ops_path_tensor_src_bf16_dst_fp32"
HEADER = (
    '"ID","Process ID","Kernel Name","thread Domain:Push/Pop_Range","dram__bytes_read.sum",'
    f'"dram__bytes_write.sum","gpu__time_duration.sum","{TENSOR}.sum"'
)
UNITS = '"","","","","Mbyte","byte","ns",""'
FILE = f"""==PROF== Connected to process 42
some words of the program
{HEADER}
{UNITS}
"0","42","gemv, bf16","llmprof.decode","269.5","1,024","100000","537,000,000"
"1","42","attention","llmprof.decode","10","0","20000","5,000,000"
"2","42","gemm","llmprof.prefill","300","5000","900000","2,147,483,648"
"""


@pytest.fixture
def counters(tmp_path: Path) -> Path:
    path = tmp_path / "counters.csv"
    path.write_text(FILE)
    return path


def test_the_raw_page_in_base_units(counters: Path) -> None:
    first, second, third = read_ncu_csv(counters)
    assert first.name == "gemv, bf16"
    assert first.metrics["dram__bytes_read.sum"] == 269.5e6
    assert first.metrics["dram__bytes_write.sum"] == 1024
    assert first.metrics["gpu__time_duration.sum"] == pytest.approx(1e-4)
    assert "llmprof.decode" in second.labels
    assert third.metrics[f"{TENSOR}.sum"] == 2 * 1024**3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no table at all",
        HEADER,
        '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n"0","k","m","",1\n',
        FILE.replace("Mbyte", "furlong"),
        FILE.replace("269.5", "many"),
    ],
    ids=["empty", "prose", "header-only", "details-page", "unit", "number"],
)
def test_what_ncu_did_not_write_is_refused_with_how_to_write_it(counters: Path, text: str) -> None:
    counters.write_text(text)
    with pytest.raises(InputError) as refused:
        read_ncu_csv(counters)
    assert "--page raw" in refused.value.line()


@pytest.mark.parametrize(
    ("cell", "unit", "value"),
    [
        ("269.5", "Mbyte", 269.5e6),
        ("269,500", "Kbyte", 269.5e6),
        ("1,269,500,000", "byte", 1_269_500_000),
        ("0.2695", "Gbyte", 269.5e6),
        ("269.5", "MB", 269.5e6),
        ("2.695e+08", "byte", 269.5e6),
        (" 269500000 ", " byte ", 269.5e6),
    ],
)
def test_units_and_thousands_as_versions_spell_them(
    counters: Path, cell: str, unit: str, value: float
) -> None:
    counters.write_text(FILE.replace('"269.5"', f'"{cell}"').replace('"Mbyte"', f'"{unit}"'))
    assert read_ncu_csv(counters)[0].metrics["dram__bytes_read.sum"] == pytest.approx(value)


@pytest.mark.parametrize("cell", ["1,5", "269,50", "1.024,5", "-3", "0x10", "inf"])
def test_a_comma_that_is_no_thousands_is_not_guessed(counters: Path, cell: str) -> None:
    counters.write_text(FILE.replace('"269.5"', f'"{cell}"'))
    with pytest.raises(InputError, match="no number in a known unit") as refused:
        read_ncu_csv(counters)
    assert "LC_ALL=C" in refused.value.line()


def test_metrics_that_nothing_is_computed_from_may_be_in_any_unit(counters: Path) -> None:
    extra = FILE.replace(f'"{TENSOR}.sum"', f'"{TENSOR}.sum","sm__cycles_elapsed.avg.per_second"')
    extra = extra.replace('"ns",""', '"ns","","cycle/nsecond"')
    extra = re.sub(r'^("[012]","42".*)$', r'\1,"1,2 GHz"', extra, flags=re.MULTILINE)
    counters.write_text(extra)
    assert read_ncu_csv(counters)[0].metrics["dram__bytes_read.sum"] == 269.5e6


def test_values_that_are_not_there_are_absent_and_not_zero(counters: Path) -> None:
    counters.write_text(FILE.replace('"269.5"', '"n/a"').replace('"10","0"', '"","0"'))
    kernels = read_ncu_csv(counters)
    assert "dram__bytes_read.sum" not in kernels[0].metrics
    assert dram_bytes_of(kernels) is None


def test_a_header_per_process_and_kernels_of_one_name(counters: Path) -> None:
    """Each launch counts, whatever others are called; columns may differ from table to table."""
    other = HEADER.replace('"Process ID",', "")
    units = UNITS.replace('"","","","",', '"","","",')
    row = '"0","gemm","llmprof.prefill","1","0","1000","0"'
    counters.write_text(f"{FILE}==PROF== Disconnected\n{other}\n{units}\n{row}\n{row}\n")
    kernels = read_ncu_csv(counters)
    assert [one.name for one in kernels][-3:] == ["gemm"] * 3
    assert dram_bytes_of(kernels[-2:]) == 2e6


def test_without_the_row_of_units_no_unit_is_guessed(counters: Path) -> None:
    counters.write_text(FILE.replace(f"{UNITS}\n", ""))
    with pytest.raises(InputError, match="row of units"):
        read_ncu_csv(counters)


def test_phases_by_their_ranges_beside_the_run_s_counts(counters: Path) -> None:
    report = a_report()
    comparison = compare_with_counters(
        report, read_ncu_csv(counters), file="counters.csv", phase=None, steps=1
    )
    prefill, decode = comparison.phases
    point = next(one for one in report.points if one.label == "decode")
    assert (prefill.phase, decode.phase) == (Phase.PREFILL, Phase.DECODE)
    assert decode.dram_bytes == pytest.approx(279.5e6 + 1024)
    assert decode.counted_bytes == point.bytes_required
    assert decode.amplification == pytest.approx((279.5e6 + 1024) / point.bytes_required)
    assert decode.hardware_flops == 542e6
    assert decode.analytic_flops == point.flops
    assert decode.gpu_time_s == pytest.approx(1.2e-4)
    assert decode.missing == {}


def test_several_steps_are_divided(counters: Path) -> None:
    kernels = read_ncu_csv(counters)
    (decode,) = compare_with_counters(
        a_report(), kernels, file="c", phase=Phase.DECODE, steps=3
    ).phases
    assert decode.dram_bytes == pytest.approx((579.5e6 + 6024) / 3)
    assert decode.kernels == 1


def test_without_ranges_the_phase_must_be_named(counters: Path) -> None:
    counters.write_text(FILE.replace("llmprof.", "other."))
    with pytest.raises(InputError, match="NVTX"):
        compare_with_counters(a_report(), read_ncu_csv(counters), file="c", phase=None, steps=1)


def kernel(**metrics: float) -> ProfiledKernel:
    return ProfiledKernel("k", {name.replace("_sum", ".sum"): v for name, v in metrics.items()}, "")


def test_a_metric_and_its_parts_are_never_both_added() -> None:
    """A product of 1024^3 in bf16 is 2 147 483 648 operations, however many metrics say so."""
    ops = 2.0 * 1024**3
    whole = kernel(
        **{
            f"{TENSOR}_sum": ops,
            f"{TENSOR}_sparsity_off_sum": ops,
            f"{TENSOR}_sparsity_on_sum": 0.0,
            "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off_sum": ops,
        }
    )
    assert hardware_flops_of([whole]) == ops
    parts = kernel(**{f"{TENSOR}_sparsity_off_sum": ops, f"{TENSOR}_sparsity_on_sum": 0.0})
    assert hardware_flops_of([parts]) == ops


def test_fused_and_paired_instructions_count_as_what_they_do() -> None:
    name = "smsp__sass_thread_inst_executed_op_{}_pred_on_sum"
    one = kernel(
        **{f"{TENSOR}_sum": 0.0}, **{name.format(op): 10.0 for op in ("fadd", "ffma", "hfma")}
    )
    assert hardware_flops_of([one]) == 10 + 20 + 40


def test_a_metric_that_one_kernel_lacks_makes_no_sum() -> None:
    with_both = kernel(dram__bytes_read_sum=1.0, dram__bytes_write_sum=2.0)
    assert dram_bytes_of([with_both]) == 3.0
    assert dram_bytes_of([with_both, kernel(dram__bytes_read_sum=1.0)]) is None
    assert hardware_flops_of([with_both]) is None
    comparison = compare_with_counters(
        a_report(), [with_both], file="c", phase=Phase.DECODE, steps=1
    )
    assert "hardware_flops" in comparison.phases[0].missing


def test_the_command(
    counters: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLMPROF_DIR", str(counters.parent / "runs"))
    save_run(a_run_record())
    assert execute(["ncu", str(counters)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "DRAM bytes, measured 280 MB ncu" in out
    assert "hardware FLOP 542 MFLOP" in out
    assert execute(["ncu", str(counters), "--phase", "warmup"]) == 2


def test_a_missing_file_is_said_once(tmp_path: Path) -> None:
    missing = tmp_path / "none.csv"
    with pytest.raises(InputError) as caught:
        read_ncu_csv(missing)
    assert caught.value.line() == f"cannot read {missing}: No such file or directory"


def test_a_binary_file_is_refused_with_how_to_write_a_table(counters: Path) -> None:
    counters.write_bytes(b"\x00\xaa\xff")
    with pytest.raises(InputError, match="no text") as refused:
        read_ncu_csv(counters)
    assert "--page raw" in refused.value.line()
