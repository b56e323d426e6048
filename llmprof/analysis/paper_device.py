"""A device that nobody ran the model on: known by its measured ceilings, or by its datasheet alone."""

from dataclasses import dataclass
from typing import Final

from llmprof.analysis.device_rates import rates_of
from llmprof.analysis.op_roof import last_level_cache_bytes
from llmprof.analysis.prediction_target import (
    available_on,
    fused_trouble,
    multiplies_fp8,
    packed_rows_of,
)
from llmprof.analysis.rates import Rates
from llmprof.errors import InputError
from llmprof.schema.ceilings import Ceilings, FixedCost
from llmprof.schema.cost import StepCost
from llmprof.schema.datasheet import Datasheet

_NOT_STATED: Final = FixedCost(alpha_s=0.0, spread=0.0, method="no datasheet states it")


@dataclass(frozen=True, slots=True)
class PaperDevice:
    """What a forecast on paper asks of a device."""

    name: str
    available_bytes: int
    cache_bytes: int | None
    """In front of memory; None where it is not known."""
    fixed_cost: FixedCost
    ceilings: Ceilings | None
    sheet: Datasheet | None
    """Instead of ceilings."""

    @classmethod
    def of_ceilings(cls, ceilings: Ceilings) -> "PaperDevice":
        environment = ceilings.environment
        return cls(
            name=environment.device_name,
            available_bytes=available_on(environment),
            cache_bytes=last_level_cache_bytes(environment, ceilings.bandwidth),
            fixed_cost=ceilings.fixed_cost,
            ceilings=ceilings,
            sheet=None,
        )

    @classmethod
    def of_datasheet(cls, sheet: Datasheet, memory_bytes: int | None = None) -> "PaperDevice":
        """`memory_bytes` overrules what the vendor states.

        Raises:
            InputError: no memory, or no bandwidth, is stated.
        """
        available = memory_bytes or sheet.memory_bytes
        if available is None:
            raise InputError(
                f"the datasheet of {sheet.name} states no memory", remedy="Give --memory 64GB"
            )
        if sheet.memory_bytes_per_s is None:
            raise InputError(
                f"the datasheet of {sheet.name} states no bandwidth",
                remedy="Measure it there: llmprof ceilings --json, then --device-ceilings FILE",
            )
        return cls(sheet.name, available, sheet.l2_bytes, _NOT_STATED, None, sheet)

    @property
    def has_decode_kernel(self) -> bool:
        """Flash attention decodes through block tables; a device of which this is not known has it."""
        environment = None if self.ceilings is None else self.ceilings.environment
        return environment is None or environment.gpu is None or "triton" in environment.versions

    @property
    def on_gpu(self) -> bool:
        """The datasheets are those of GPUs."""
        return self.ceilings is None or self.ceilings.environment.gpu is not None

    @property
    def packed_rows(self) -> int:
        """See `CostOptions`; the datasheets are those of GPUs."""
        return packed_rows_of(None if self.ceilings is None else self.ceilings.environment)

    @property
    def fused_trouble(self) -> str | None:
        """See `fused_rows_of`; the datasheets are those of GPUs."""
        return fused_trouble(None if self.ceilings is None else self.ceilings.environment)

    @property
    def multiplies_fp8(self) -> bool:
        """Whether the device has a matmul in fp8, and its rate is known."""
        if self.ceilings is not None:
            return multiplies_fp8(self.ceilings)
        return self.sheet is not None and "fp8" in self.sheet.flops_per_s

    def rates(self, cost: StepCost) -> Rates:
        """Ceilings of the step's working set and dtypes; of a datasheet its peaks.

        Raises:
            InputError: no rate is known for a dtype that the step computes in.
        """
        if self.ceilings is not None:
            return rates_of(self.ceilings, cost)
        sheet = self.sheet
        assert sheet is not None, "one of both is there"
        assert sheet.memory_bytes_per_s is not None, "checked when made"
        dtypes = sorted({op.compute_dtype for op in cost.ops if op.flops})
        missing = [dtype for dtype in dtypes if dtype not in sheet.flops_per_s]
        if missing:
            stated = " or ".join(one for one in _FLOATS if one in sheet.flops_per_s)
            raise InputError(
                f"the datasheet of {sheet.name} states no {', '.join(missing)} rate",
                remedy=f"Set weights.dtype={stated}, which it states"
                if stated
                else "Measure it there: llmprof ceilings --json, then --device-ceilings FILE",
            )
        return Rates(
            read_bytes_per_s=sheet.memory_bytes_per_s,
            matmul_flops_per_s=sheet.flops_per_s[dtypes[0]],
            matmul_dtype=dtypes[0],
            other_flops_per_s=sheet.flops_per_s,
        )


_FLOATS: Final = ("fp32", "bf16", "fp16")
"""That weights can be set to."""
