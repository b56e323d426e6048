"""What must hold of every row, whatever the device."""

import pytest

from llmprof.devices.lookup import find_device
from llmprof.devices.table import Row, rows
from llmprof.schema.datasheet import Datasheet

ROWS = rows()
NVIDIA = [row for row in ROWS if row.datasheet.vendor == "NVIDIA"]


def test_there_are_many_and_each_has_its_own_name() -> None:
    names = [row.datasheet.name for row in ROWS]
    assert len(names) == len(set(names)) >= 40
    assert {row.datasheet.vendor for row in ROWS} == {"NVIDIA", "AMD", "Apple", "Intel"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.datasheet.name)
def test_a_row_has_a_source_and_is_found_by_what_it_reports(row: Row) -> None:
    sheet = row.datasheet
    assert sheet.document
    assert 2018 <= int(sheet.document_date[:4]) <= 2026
    assert sheet.memory_bytes_per_s or sheet.flops_per_s
    for name in row.names:
        found = find_device(
            name,
            memory_bytes=sheet.memory_bytes,
            logical_processors=max(row.logical_processors, default=None),
        )
        assert isinstance(found, Datasheet)
        assert found == sheet


@pytest.mark.parametrize("row", NVIDIA, ids=lambda row: row.datasheet.name)
def test_rates_are_dense_and_of_the_same_chip(row: Row) -> None:
    """Half the width is twice the rate. One sparse figure among dense ones would be twice that.

    int8 is four times bf16 on GeForce cards, which accumulate in fp32 at half rate.
    """
    rates = row.datasheet.flops_per_s
    half = rates.get("bf16", rates.get("fp16"))
    bounds = {"tf32": (0.47, 0.53), "fp8": (1.95, 2.1), "int8": (1.95, 4.1)}
    for dtype, (least, most) in bounds.items():
        if half is not None and dtype in rates:
            assert least <= rates[dtype] / half <= most
    assert rates.get("fp32", 0.0) <= (half or float("inf"))


def test_the_peaks_that_are_confused_most() -> None:
    """Dense bf16 with fp32 accumulate: 2:4 sparsity would double, fp16 accumulate too (RTX 4090)."""
    bf16 = {row.datasheet.name: row.datasheet.flops_per_s.get("bf16") for row in ROWS}
    assert bf16["H100 SXM5 80GB"] == pytest.approx(989.4e12)
    assert bf16["H200 SXM5 141GB"] == pytest.approx(989.5e12)
    assert bf16["RTX 4090"] == pytest.approx(165.2e12)
    assert bf16["V100 SXM2 16GB"] is None
