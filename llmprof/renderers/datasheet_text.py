"""What the vendor states, in words: the same in the terminal and on the page."""

from llmprof import units
from llmprof.renderers.wording import one_line
from llmprof.schema.datasheet import Datasheet
from llmprof.schema.report import RooflinePoint


def datasheet_name(datasheet: Datasheet) -> str:
    """What labels a line of a figure: "datasheet, H100 PCIe 80GB"."""
    return f"datasheet, {one_line(datasheet.name)}"


def datasheet_rates(datasheet: Datasheet) -> str:
    """Memory, then FLOP/s by dtype, dense."""
    memory = datasheet.memory_bytes_per_s
    rates = [f"memory {units.bytes_per_s(memory)}"] if memory else []
    rates += [f"{dtype} {units.flops_per_s(rate)}" for dtype, rate in datasheet.flops_per_s.items()]
    if datasheet.tdp_w:
        rates.append(f"at {units.si(datasheet.tdp_w, 'W')}")
    return ", ".join(rates)


def datasheet_sentence(datasheet: Datasheet) -> str:
    """Device, rates, note and source in one line."""
    note = f"; {one_line(datasheet.note)}" if datasheet.note else ""
    return (
        f"{one_line(datasheet.name)}: {datasheet_rates(datasheet)}, dense{note} "
        f"({one_line(datasheet.document)}, {one_line(datasheet.document_date)})"
    )


def utilization(point: RooflinePoint) -> str:
    """As far as they are known, "MFU 12 %, MBU 61 %"; empty where neither is."""
    shares = (("MFU", point.mfu), ("MBU", point.mbu))
    return ", ".join(
        f"{name} {units.percent(share)}" for name, share in shares if share is not None
    )
