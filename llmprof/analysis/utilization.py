"""MFU and MBU: what was achieved over what the vendor states.

MFU = FLOP/s over the dense peak of the dtype (Chowdhery et al., "PaLM", 2022, without rematerialised
work). MBU = bytes/s of weights and KV over the peak memory bandwidth (Databricks, "LLM Inference
Performance Engineering", 2023). Both compare machines; to judge a kernel, use the roof fraction.
"""

from llmprof.schema.datasheet import Datasheet
from llmprof.schema.report import RooflinePoint


def with_utilization(point: RooflinePoint, datasheet: Datasheet | None) -> RooflinePoint:
    """The point with its MFU and MBU; null where the peak is not known, or not of this dtype."""
    if datasheet is None:
        return point
    return point.model_copy(
        update={
            "mfu": _over(point.achieved_flops_per_s.point, datasheet.flops_per_s.get(point.dtype)),
            "mbu": _over(point.achieved_bytes_per_s.point, datasheet.memory_bytes_per_s),
        }
    )


def _over(achieved: float, peak: float | None) -> float | None:
    return None if peak is None else achieved / peak
