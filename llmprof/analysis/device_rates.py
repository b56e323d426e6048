"""The ceilings of a device as the rates of one step, where no reading was taken beside it."""

from llmprof.analysis.rates import Rates, best_flops_per_s
from llmprof.errors import InputError
from llmprof.schema.ceilings import Ceilings, MemoryOp
from llmprof.schema.cost import StepCost


def rates_of(ceilings: Ceilings, cost: StepCost) -> Rates:
    """Read bandwidth for the step's working set, and the best matmul of each dtype.

    Raises:
        InputError: ceilings without a read or a matmul of a dtype that the step computes in.
    """
    working_set = cost.traffic.weights + cost.traffic.kv_read
    dtypes = sorted({op.compute_dtype for op in cost.ops if op.flops})
    flops = best_flops_per_s(ceilings)
    missing = [dtype for dtype in dtypes if dtype not in flops]
    reads = [one for one in ceilings.bandwidth if one.op is MemoryOp.READ]
    if missing or not reads:
        what = f"matmuls in {', '.join(missing)}" if missing else "reading memory"
        raise InputError(
            f"the ceilings of {ceilings.environment.device_name} have none for {what}",
            remedy="Measure them there again: llmprof ceilings --refresh --json",
        )
    reads.sort(key=lambda one: one.buffer_bytes)
    read = next((one for one in reads if one.buffer_bytes >= working_set), reads[-1])
    return Rates(
        read_bytes_per_s=read.bytes_per_s,
        matmul_flops_per_s=flops[dtypes[0]],
        matmul_dtype=dtypes[0],
        other_flops_per_s=flops,
    )
