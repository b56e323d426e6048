"""What each lever does to bytes, memory and time, beside what its arithmetic says.

    python -m tests.benchmarks.lever_physics [context] [shape] [flash] [cache] [batch] [formats]
        [--rounds 7]

`context`: a 1B shape at 512 to 16k synthetic tokens; the slope against KV bytes over the rate of the
    attention kernel alone, and whether 16k held but 1k attended costs like 1k.
`shape`: KV heads, head size, layers, KV dtype, batch varied on random weights: bytes of the real
    tensors, and the slope of a decode step over its context.
`flash`: standard and flash attention at 2k to 8k prompt tokens: peak memory and prefill time.
`cache`: a token without a KV cache and with one, as the text grows.
`batch`: 1 to 16 sequences share the weight reads.
`formats`: bytes of packed weights against their arithmetic.

All cells of a part take turns in every round; figures are medians over rounds. Exit code 1 if a number
of bytes is wrong or the slope of `context` is further than 15 % from its prediction.
"""

import argparse
import sys

from tests.benchmarks import physics_context, physics_levers

PARTS = {
    "context": physics_context.context,
    "shape": physics_context.shape,
    "flash": physics_levers.flash,
    "cache": physics_levers.cache,
    "batch": physics_levers.batch,
    "formats": physics_levers.formats,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    held = [PARTS[name](arguments.rounds) for name in arguments.parts or PARTS]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
