"""What a tiny engine really ran beside what `costs` says, for one setting of the switches."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from llmprof.costs.kv_cache import kv_bytes_per_token
from llmprof.costs.memory import kv_bytes_reserved
from llmprof.costs.options import CostOptions
from llmprof.costs.step import step_cost
from llmprof.engine.description import cost_options
from llmprof.engine.engine import Engine
from llmprof.engine.model import Decoder
from llmprof.engine.norm import HeadNorm
from llmprof.engine.open_workload import open_workload
from llmprof.instruments.op_recorder import OpRecorder
from llmprof.schema.cost import OpGroup
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import AttentionKind, KvLayout, RunConfig
from tests.tiny_decoders import on_paper

Groups = Mapping[str, Mapping[str, Any]]

PROMPT_TOKENS: Final = 30
"""Beyond the windows of the tiny models, of 16 to 24 tokens."""
OUTPUT_TOKENS: Final = 3
BATCH: Final = 3

SWITCHES: Final[dict[str, Groups]] = {
    "as it is": {},
    "standard attention": {"attention": {"kind": "standard"}},
    "no cache": {"kv_cache": {"layout": "none"}},
    "no cache, standard": {"kv_cache": {"layout": "none"}, "attention": {"kind": "standard"}},
    "paged": {"kv_cache": {"layout": "paged", "block_tokens": 8}},
    "paged, standard": {"kv_cache": {"layout": "paged"}, "attention": {"kind": "standard"}},
    "cache int8": {"kv_cache": {"dtype": "int8"}},
    "cache fp8, paged": {"kv_cache": {"layout": "paged", "dtype": "fp8"}},
    "int8": {"weights": {"quantization": "int8"}},
    "int8 by channel": {"weights": {"quantization": "int8", "group_size": "channel"}},
    "int4": {"weights": {"quantization": "int4"}},
    "int4 symmetric, 64": {
        "weights": {"quantization": "int4", "group_size": 64, "symmetric": True}
    },
    "fp32": {"weights": {"dtype": "fp32"}},
    "compiled": {"execution": {"mode": "compiled"}},
    "compiled, int4, paged, cache int8": {
        "execution": {"mode": "compiled"},
        "weights": {"quantization": "int4"},
        "kv_cache": {"layout": "paged", "dtype": "int8"},
    },
    "continuous": {"batching": {"policy": "continuous", "max_step_tokens": 64}},
    "continuous, int8, paged": {
        "batching": {"policy": "continuous", "max_step_tokens": 64},
        "weights": {"quantization": "int8"},
        "kv_cache": {"layout": "paged"},
    },
}


@dataclass(frozen=True, slots=True)
class Counted:
    """Both sides of each quantity, and where they first differ."""

    flops: int
    """Of every step, as torch dispatched the operators."""
    flops_expected: float
    weight_bytes: int
    """Of the tensors that the engine holds."""
    weight_bytes_expected: float
    kv_bytes: float
    """That hold tokens at the end of a round, as the engine says; of requests that ended, none."""
    kv_bytes_expected: float
    kv_reserved: float
    kv_reserved_expected: float
    differing: tuple[str, ...]
    """Steps and op groups whose FLOPs are not those of `costs`."""

    @property
    def agrees(self) -> bool:
        """FLOPs to the last one, bytes within 1 %."""
        pairs = (
            (self.weight_bytes, self.weight_bytes_expected),
            (self.kv_bytes, self.kv_bytes_expected),
            (self.kv_reserved, self.kv_reserved_expected),
        )
        close = all(abs(found - wanted) <= 0.01 * wanted for found, wanted in pairs)
        return close and not self.differing


def config_of(switches: Groups) -> RunConfig:
    workload = {
        "batch": BATCH,
        "prompt_tokens": PROMPT_TOKENS,
        "output_tokens": OUTPUT_TOKENS,
    }
    weights = {"source": "random", **switches.get("weights", {})}
    return RunConfig.model_validate(
        {"model": "any", **switches, "weights": weights, "workload": workload}
    )


def count(model: ModelConfig, switches: Groups) -> Counted:
    """Run one round of random weights.

    Raises CapabilityError or InputError for a switch that the model or this machine refuses.
    """
    config = config_of(switches)
    engine = Engine.load(
        on_paper(model), config, device="cpu", threads=1, host_available_bytes=2**33
    )
    work = open_workload(engine, config)
    recorder = OpRecorder()
    with recorder:
        work.run_round(recorder)
    options = cost_options(engine, config)
    flops, expected, differing = 0, 0.0, []
    for index, step in enumerate(recorder.steps()):
        cost = step_cost(model, engine.manifest, step.shape, options)
        for group in OpGroup:
            found = sum(op.flops or 0 for op in step.ops if op.group is group)
            of_group = cost.of_groups(group)
            # a fused kernel's formula is the full rectangle, whatever the mask lets it skip
            standard = config.attention.kind is AttentionKind.STANDARD
            wanted = of_group.flops if standard else of_group.flops_dense
            flops, expected = flops + found, expected + wanted
            if found != wanted:
                differing.append(f"step {index}, {group.value}: {found} for {wanted}")
        differing += [f"{op.op} without a formula" for op in step.ops if op.missing_formula]
    said = work.describe()
    static = config.batching.policy.value == "static"
    held = PROMPT_TOKENS + OUTPUT_TOKENS - 1  # the last token is sampled and never cached
    return Counted(
        flops=flops,
        flops_expected=expected,
        weight_bytes=held_bytes(engine.decoder),
        weight_bytes_expected=engine.manifest.stored_bytes,
        kv_bytes=said.kv_bytes_used,
        kv_bytes_expected=_kv_bytes_held(model, options, held) if static else said.kv_bytes_used,
        kv_reserved=said.kv_bytes_reserved,
        kv_reserved_expected=kv_bytes_reserved(
            model, options, (held + 1,) * BATCH, max_tokens=held + 1
        )
        if static
        else said.kv_bytes_reserved,
        differing=tuple(differing),
    )


def _kv_bytes_held(model: ModelConfig, options: CostOptions, tokens: int) -> float:
    """As this engine holds them: layers with a window keep what they no longer see."""
    if options.kv_layout is KvLayout.NONE:
        return 0.0
    return BATCH * tokens * kv_bytes_per_token(model, options.kv_bytes_per_number)


def held_bytes(decoder: Decoder) -> int:
    """Of every tensor of the embedding, the layers, the last norm and the head, each once."""
    parts = (decoder.embedding, decoder.layers, decoder.final_norm, decoder.head)
    sizes = {tensor.data_ptr(): size for tensor, size in _tensors(parts)}
    return sum(sizes.values())


def _tensors(part: object) -> Iterator[tuple[torch.Tensor, int]]:
    """With the bytes that count: of a row that was copied for each head, those of the row."""
    if isinstance(part, torch.Tensor):
        yield part, part.nbytes
    elif isinstance(part, HeadNorm):
        yield part.gains, 2 * part.gains[0].nbytes
    elif isinstance(part, tuple | list):
        for one in part:
            yield from _tensors(one)
    elif type(part).__module__.startswith("llmprof.engine"):
        names = [*getattr(part, "__dict__", {}), *getattr(type(part), "__slots__", ())]
        for name in names:
            yield from _tensors(getattr(part, name, None))
