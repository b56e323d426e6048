"""One rank of a group in a test: `python -m tests.rank_process WHAT FOLDER`, which torchrun starts.

`cases` compares shared-out engines with what the test computed by one process, and prints JSON.
`run` is `llmprof run` itself, with known ceilings; `fails` and `dies` end the last rank in its third round.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from llmprof.architectures.source import resolve_model
from llmprof.costs.tensor_parallel import weight_bytes_per_device
from llmprof.costs.weight_layout import laid_out
from llmprof.engine.engine import Engine
from llmprof.engine.engine_workload import EngineWorkload
from llmprof.engine.launch_environment import launch_from
from llmprof.engine.probe import NullProbe, Probe
from llmprof.engine.rank_group import join_ranks, leave_ranks
from llmprof.errors import LlmprofError, MeasurementFailedError
from llmprof.schema.settings import RunConfig
from tests.records import a_run_record

FATAL_ROUND = 3


def computed(settings: dict[str, Any], ranks: Any = None) -> dict[str, Any]:
    """Tokens of a round and logits of its first step, by one process or by a rank."""
    config = RunConfig.model_validate(settings)
    source = resolve_model(config.model, weights=config.weights.source)
    engine = Engine.load(
        source, config, device="cpu", threads=1, host_available_bytes=2**33, ranks=ranks
    )
    workload = EngineWorkload(engine, config)
    workload.run_round(NullProbe())
    batch = engine.open_batch(torch.arange(1, 9).repeat(config.workload.batch, 1), output_tokens=1)
    with torch.inference_mode():
        logits = engine.forward(batch.next_step(), batch.cache, batch.rotary, NullProbe())
    whole = laid_out(source.config, config.weights, engine.dtype.name)
    return {
        "tokens": workload.output_tokens().tolist(),
        "logits": logits.tolist(),
        "weight_bytes": engine.manifest.stored_bytes,
        "planned_bytes": weight_bytes_per_device(
            source.config, whole, 1 if ranks is None else ranks.size
        ),
        "kv_bytes_per_token": engine.kv_bytes_per_token,
    }


def run_cases(cases: dict[str, dict[str, Any]]) -> None:
    ranks = join_ranks(launch_from(os.environ), "cpu")
    results: dict[str, Any] = {}
    for name, settings in cases.items():
        shared = settings | {"parallel": {"tensor": ranks.size}}
        try:
            results[name] = computed(shared, ranks)
        except LlmprofError as error:
            results[name] = {"refused": error.line()}
    leave_ranks()
    if ranks.leads:
        sys.stdout.write(json.dumps(results) + "\n")


def run_command(arguments: list[str], fate: str) -> None:
    from llmprof.cli.app import main

    doomed = fate != "run" and os.environ["RANK"] != "0"
    run_round = EngineWorkload.run_round
    sys.argv = ["llmprof", *arguments]
    with (
        patch("llmprof.profiler.cached_ceilings", lambda *_, **__: a_run_record().ceilings),
        patch.object(
            EngineWorkload, "run_round", _doomed(fate, run_round) if doomed else run_round
        ),
    ):
        main()


def _doomed(
    fate: str, run_round: Callable[[EngineWorkload, Probe], str]
) -> Callable[[EngineWorkload, Probe], str]:
    rounds = 0

    def run(workload: EngineWorkload, probe: Probe) -> str:
        nonlocal rounds
        rounds += 1
        if rounds == FATAL_ROUND and fate == "dies":
            os._exit(9)
        if rounds == FATAL_ROUND:
            raise MeasurementFailedError("out of memory while running a step")
        return run_round(workload, probe)

    return run


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "cases":
        run_cases(json.loads(Path(rest[0]).read_text()))
    else:
        run_command(rest, what)
