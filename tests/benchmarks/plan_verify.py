"""Plans against the engine, of a model of 1.2 billion parameters and with both kinds of attention.

    python -m tests.benchmarks.plan_verify [--model llama-3.2-1b] [--memory-gb 2.6] [--prompt 512]
        [--attention standard] [--layout contiguous]

Weights and KV cache must agree to the byte, live tensors within 2 %, and the first batch that runs
out of memory must be within one of the planned one. Exit code 1 where they do not. Weights are
random, in bf16; the default takes minutes, and 3 GB.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from llmprof.architectures.source import resolve_model
from llmprof.experiments.plan_verification import verified_plan
from llmprof.planning.plan import PlanRequest
from llmprof.schema.measurement import Source
from llmprof.schema.plan import PlanVerification
from llmprof.schema.run import Tool
from llmprof.schema.settings import RunConfig

_LIVE_SHARE: Final = 0.02


def main() -> int:
    asked = _arguments()
    print(
        f"{'attention':10} {'layout':11} {'batch':>5} {'weights':>9} {'KV cache':>9} {'live':>8} "
        f"{'first failure':>21}  agrees"
    )
    wrong = 0
    for attention in asked.attention:
        for layout in asked.layout:
            check = _verified(asked, attention, layout)
            weights, cache, _, live = (
                (one.allocated_bytes - one.planned_bytes, one.planned_bytes)
                for one in check.compared
            )
            found = check.real_first_failure
            near = found is not None and abs(found - check.predicted_first_failure) <= 1
            off = live[0] / live[1]
            agrees = weights[0] == cache[0] == 0 and abs(off) <= _LIVE_SHARE and near
            wrong += not agrees
            print(
                f"{attention:10} {layout:11} {check.batch:5} {weights[0]:+9.0f} {cache[0]:+9.0f} "
                f"{off:+8.3%} {f'{found}, planned {check.predicted_first_failure}':>21}  "
                f"{'yes' if agrees else 'NO'}",
                flush=True,
            )
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    def words(text: str) -> Sequence[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.2-1b")
    parser.add_argument("--memory-gb", type=float, default=2.6)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--attention", type=words, default=("flash", "standard"))
    parser.add_argument("--layout", type=words, default=("contiguous", "paged"))
    return parser.parse_args()


def _verified(asked: argparse.Namespace, attention: str, layout: str) -> PlanVerification:
    config = RunConfig.model_validate(
        {
            "model": asked.model,
            "device": "cpu",
            "weights": {"source": "random", "dtype": "bf16"},
            "attention": {"kind": attention},
            "kv_cache": {"layout": layout},
        }
    )
    request = PlanRequest(
        device_bytes=int(asked.memory_gb * 1e9),
        device_source=Source.ASSUMED,
        reserve_bytes=0,
        contexts=(asked.prompt,),
    )
    source = resolve_model(asked.model, weights=config.weights.source)
    plan = verified_plan(source, config, request, tool=Tool(version="0", argv=()))
    if plan.verification is None:
        raise SystemExit(f"{attention}, {layout}: nothing was verified")
    return plan.verification


if __name__ == "__main__":
    sys.exit(main())
