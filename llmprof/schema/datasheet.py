"""What a vendor states about a device. It checks plausibility and gives MFU and MBU, nothing else."""

from pydantic import Field, PositiveFloat, PositiveInt

from llmprof.schema.measurement import Source
from llmprof.schema.record import Record


class Datasheet(Record):
    """Dense peaks of one device in one form factor; what the vendor does not state is null."""

    name: str
    vendor: str
    form_factor: str | None = None
    """SXM5, PCIe, NVL, laptop, ...: the same chip has other peaks in another one."""
    flops_per_s: dict[str, PositiveFloat] = Field(default_factory=dict)
    """By dtype, dense (without structured sparsity); products of fp16, bf16 and fp8 are accumulated in
    fp32. fp32 is the rate of plain arithmetic, not of tensor cores."""
    memory_bytes_per_s: PositiveFloat | None = None
    memory_bytes: PositiveInt | None = None
    l2_bytes: PositiveInt | None = None
    """Of a CPU its last-level cache."""
    tdp_w: PositiveFloat | None = None
    note: str | None = None
    document: str
    """Where the vendor states it."""
    document_date: str
    """Year, or year and month, of that document."""
    source: Source = Source.DATASHEET
