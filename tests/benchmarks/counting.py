"""Operators that ran against `costs`, for a tiny random model of each family and every switch.

    python -m tests.benchmarks.counting [--family gemma3]

FLOPs must agree to the last one, step by step and op group by op group; bytes of weights (of the
tensors that the engine holds) and of the KV cache within 1 %. Exit code 1 where they do not.
"""

import argparse
import sys

from llmprof.architectures.config_json import parse_config
from llmprof.errors import LlmprofError
from tests.counting import SWITCHES, count
from tests.tiny_decoders import DECODERS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", choices=[one.name for one in DECODERS])
    only = parser.parse_args().family
    wrong = 0
    print(f"{'model':22} {'switches':34} {'FLOPs':>12} {'weights':>9} {'KV bytes':>9}  agrees")
    for decoder in DECODERS:
        if only not in (None, decoder.name):
            continue
        model = parse_config(decoder.config, name=decoder.name)
        for name, switches in SWITCHES.items():
            try:
                found = count(model, switches)
            except LlmprofError as refused:
                print(f"{decoder.name:22} {name:34} refused: {refused.message[:60]}")
                continue
            wrong += not found.agrees
            print(
                f"{decoder.name:22} {name:34} {found.flops:12,} {found.weight_bytes:9,} "
                f"{found.kv_bytes:9,.0f}  {'yes' if found.agrees else 'NO'}"
            )
            for difference in found.differing[:4]:
                print(f"    {difference}")
            if not found.agrees and not found.differing:
                print(f"    {found}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
