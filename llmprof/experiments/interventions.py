"""The interventions: each changes one thing and nothing else, or says why it cannot be made here."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from llmprof.engine.engine import Engine
from llmprof.engine.execution import make_runner
from llmprof.engine.feed_forward import DenseFeedForward
from llmprof.experiments.intervention_bench import InterventionBench, Steps, torch_threads
from llmprof.instruments.hold_back import hold_back
from llmprof.instruments.injection import HostSleep, QueueAhead
from llmprof.instruments.sm_partition import SmPartition, half_of
from llmprof.schema.ceilings import CeilingReading
from llmprof.schema.cost import Phase
from llmprof.schema.intervention import Intervention, InterventionKind
from llmprof.schema.settings import ContextKind, ExecutionMode, KvLayout

SLEEP_SHARE = 0.30
"""Of a decode step: far beyond the margin of a forecast."""
LEAST_SLEEP_S = 0.001
LONGER_CONTEXT = 4
_HOLD_BACK = 1.5
"""Times the host's time to enqueue a step."""


def host_sleep(bench: InterventionBench) -> list[Intervention]:
    step_s = bench.step_s(Phase.DECODE) or 0.0
    sleep_s = max(LEAST_SLEEP_S, SLEEP_SHARE * step_s)
    slept = bench.arm(wrap=lambda probe: HostSleep(probe, sleep_s, busy=True))
    return _made(
        InterventionKind.HOST_SLEEP,
        f"the host waits {sleep_s * 1e3:.3g} ms more per step",
        bench.in_turn(bench.arm(), slept),
        phases=(Phase.DECODE,),
        added_host_s=sleep_s,
    )


def fewer_threads(bench: InterventionBench) -> list[Intervention]:
    """Both roofs are read again with fewer threads: decode should follow one, prefill the other."""
    kind, fewer = InterventionKind.FEWER_THREADS, max(1, bench.threads // 2)
    change = f"{fewer} of {bench.threads} threads"
    if bench.device != "cpu":
        return _skipped(kind, change, "threads of the host are no part of the GPU")
    if bench.threads < 2:
        return _skipped(kind, change, "there is only one")
    return _smaller_device(bench, kind, change, lambda: torch_threads(fewer))


def fewer_sms(bench: InterventionBench) -> list[Intervention]:
    """As fewer threads, on a GPU: half of its multiprocessors reach more than half of its memory."""
    kind, gpu = InterventionKind.FEWER_SMS, bench.record.environment.gpu
    if gpu is None:
        return _skipped(kind, "a part of the multiprocessors", "a CPU has none")
    fewer = half_of(gpu.multiprocessors)
    change = f"{fewer} of {gpu.multiprocessors} multiprocessors"
    mode = bench.config.execution.mode
    if mode is ExecutionMode.CUDA_GRAPH:
        return _skipped(kind, change, "a graph keeps the multiprocessors that it was captured on")
    if mode is ExecutionMode.COMPILED:
        return _skipped(kind, change, "what torch.compile starts has not been seen to stay on them")
    try:
        partition = SmPartition(bench.device, fewer)
        return _smaller_device(bench, kind, change, partition.entered)
    except RuntimeError as error:  # the API is in beta
        return _skipped(kind, change, str(error).partition("\n")[0])


def _smaller_device(
    bench: InterventionBench,
    kind: InterventionKind,
    change: str,
    smaller: Callable[[], AbstractContextManager[None]],
) -> list[Intervention]:
    """Steps and readings of the whole device and inside `smaller`, in turn."""
    base = bench.arm()
    live_base = bench.live(base.needs)
    with smaller():
        changed = bench.arm()
        live_changed = bench.live(changed.needs)
    pairs: list[tuple[Steps, Steps]] = []
    readings: list[tuple[CeilingReading, CeilingReading]] = []
    for _ in range(bench.pairs):
        read, steps = live_base.read(0.0), base.run()
        with smaller():
            readings.append((read, live_changed.read(0.0)))
            pairs.append((steps, changed.run()))
    before, after = zip(*readings, strict=True)
    return _made(kind, change, pairs, base_readings=before, changed_readings=after)


def longer_context(bench: InterventionBench) -> list[Intervention]:
    """The same kernels over more cached tokens, which are random in both arms."""
    kind, workload = InterventionKind.LONGER_CONTEXT, bench.config.workload
    room = bench.engine.model.max_position_embeddings - workload.output_tokens
    tokens = min(LONGER_CONTEXT * workload.prompt_tokens, room)
    change = f"{workload.prompt_tokens:,} -> {tokens:,} cached tokens"
    if bench.config.kv_cache.layout is KvLayout.NONE:
        return _skipped(kind, change, "there is no KV cache")
    if tokens <= workload.prompt_tokens or workload.output_tokens < 2:
        return _skipped(kind, change, "the model has no more positions, or nothing is decoded")
    base, longer = (
        bench.config.model_copy(
            update={
                "workload": workload.model_copy(
                    update={"prompt_tokens": count, "context": ContextKind.SYNTHETIC}
                )
            }
        )
        for count in (workload.prompt_tokens, tokens)
    )
    half = workload.output_tokens / 2  # the median step has decoded so many
    return _made(
        kind,
        change,
        bench.in_turn(bench.arm(config=base), bench.arm(config=longer)),
        factor=(tokens + half) / (workload.prompt_tokens + half),
    )


def cache_resident(bench: InterventionBench) -> list[Intervention]:
    """Every layer uses the weights of the first one: as much arithmetic, fewer distinct bytes."""
    kind, engine = InterventionKind.CACHE_RESIDENT, bench.engine
    layers = engine.decoder.layers
    change = f"the weights of 1 of {len(layers)} layers in all of them"
    if len(layers) < 2:
        return _skipped(kind, change, "it has one layer only")
    layer = layers[0]
    if not isinstance(layer.feed_forward, DenseFeedForward):
        return _skipped(kind, change, "its layers read other experts in every step")
    projections = (layer.qkv, layer.output, *layer.feed_forward.projections)
    layer_bytes = sum(one.format.stored_bytes(*one.shape) for one in projections)
    head_bytes = engine.decoder.head.format.stored_bytes(*engine.decoder.head.shape)
    total = len(layers) * layer_bytes + head_bytes
    decoder = dataclasses.replace(engine.decoder, layers=(layer,) * len(layers))
    base = bench.arm()
    changed = bench.arm(engine=dataclasses.replace(engine, decoder=decoder))
    far = bench.live(base.needs)
    near = bench.live(
        dataclasses.replace(base.needs, working_set_bytes=layer_bytes, skinny_rows=None)
    )
    readings = [(far.read(0.0), near.read(0.0)) for _ in range(bench.pairs)]
    before, after = zip(*readings, strict=True)
    return _made(
        kind,
        change,
        bench.in_turn(base, changed),
        phases=(Phase.DECODE,),
        base_readings=before,
        changed_readings=after,
        resident_fraction=len(layers) * layer_bytes / total,
    )


def replay(bench: InterventionBench) -> list[Intervention]:
    """The same kernels, started from a recording of the step."""
    kind = InterventionKind.REPLAY
    mode = ExecutionMode.COMPILED if bench.device == "cpu" else ExecutionMode.CUDA_GRAPH
    change = f"execution.mode={mode.value}"
    if bench.config.execution.mode is not ExecutionMode.EAGER:
        compiled = bench.device != "cpu" and bench.config.execution.mode is ExecutionMode.COMPILED
        why = (
            "torch.compile made other kernels" if compiled else "the run replays its steps already"
        )
        return _skipped(kind, change, why)
    if bench.config.kv_cache.layout is KvLayout.NONE:
        return _skipped(kind, change, "without a KV cache no step has the shape of another")
    runner = make_runner(mode, device=bench.device, layout=bench.config.kv_cache.layout)
    replayed: Engine = dataclasses.replace(bench.engine, runner=runner)
    return _made(
        kind, change, bench.in_turn(bench.arm(), bench.arm(engine=replayed)), phases=(Phase.DECODE,)
    )


def queue_ahead(bench: InterventionBench) -> list[Intervention]:
    """On the device's clock alone: a step that was enqueued whole before its first kernel ran."""
    kind, change = InterventionKind.QUEUE_AHEAD, "steps are enqueued whole before they start"
    enqueue_s = bench.enqueue_s(Phase.DECODE)
    if bench.device == "cpu":
        return _skipped(kind, change, "a CPU has no queue: the host does the work itself")
    if enqueue_s is None:
        return _skipped(kind, change, "nothing is decoded")
    hold = hold_back(bench.device, _HOLD_BACK * enqueue_s)
    queued = bench.arm(wrap=lambda probe: QueueAhead(probe, hold), device_only=True)
    return _made(kind, change, bench.in_turn(bench.arm(), queued), phases=(Phase.DECODE,))


INTERVENTIONS: dict[InterventionKind, Callable[[InterventionBench], list[Intervention]]] = {
    InterventionKind.HOST_SLEEP: host_sleep,
    InterventionKind.QUEUE_AHEAD: queue_ahead,
    InterventionKind.REPLAY: replay,
    InterventionKind.FEWER_THREADS: fewer_threads,
    InterventionKind.LONGER_CONTEXT: longer_context,
    InterventionKind.CACHE_RESIDENT: cache_resident,
    InterventionKind.FEWER_SMS: fewer_sms,
}


def _made(
    kind: InterventionKind,
    change: str,
    pairs: Sequence[tuple[Steps, Steps]],
    *,
    phases: Sequence[Phase] = tuple(Phase),
    **known: Any,
) -> list[Intervention]:
    """One per phase that both arms ran."""
    both = [phase for phase in phases if all(phase in base and phase in one for base, one in pairs)]
    return [
        Intervention(
            kind=kind,
            phase=phase,
            change=change,
            base_step_s=tuple(base[phase] for base, _ in pairs),
            changed_step_s=tuple(changed[phase] for _, changed in pairs),
            **known,
        )
        for phase in both
    ]


def _skipped(kind: InterventionKind, change: str, why: str) -> list[Intervention]:
    return [Intervention(kind=kind, phase=Phase.DECODE, change=change, skipped=why)]
