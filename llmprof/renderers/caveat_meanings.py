"""What each caveat code says about the numbers, and what a reader can do about it."""

from typing import Final, NamedTuple


class CaveatMeaning(NamedTuple):
    meaning: str
    """What is doubtful, and what is not."""
    action: str
    """What to do about it, or with the numbers in spite of it."""


_M = CaveatMeaning
MEANINGS: Final[dict[str, CaveatMeaning]] = {
    "above-datasheet": _M(
        "More was measured than the vendor says the device can do: one of the two is wrong.",
        "Check the device's name, and whether the measured buffer lay in a cache.",
    ),
    "above-roof": _M(
        "A measured time is shorter than the least time that the counted work and the measured "
        "ceilings allow. One of them is wrong for this op; nothing is clipped.",
        "Trust the time, not the fraction: bytes that a cache served were counted as memory traffic, "
        "or a ceiling was read too low.",
    ),
    "attention-backend": _M(
        "Attention ran on kernels that are not the first choice here, since those do not work.",
        "Mend what the caveat names, or name the backend that you want.",
    ),
    "backend-not-predicted": _M(
        "Another library's attention kernels move the same bytes; how fast they are follows from nothing "
        "that was measured.",
        "Measure both with `llmprof compare`.",
    ),
    "cache-resident": _M(
        "What a step reads may stay in the last-level cache from step to step, so the read ceiling is "
        "that of a stream as large, not of DRAM.",
        "Do not carry these bandwidths over to a larger model; measure that model.",
    ),
    "caches-unknown": _M(
        "The system does not tell its cache sizes, so which memory level a buffer reaches is assumed.",
        "Read the level names with care; the bandwidths themselves are measured.",
    ),
    "ceilings-cache-corrupt": _M(
        "The file of cached ceilings was damaged, and they were measured anew.",
        "Nothing: the numbers are fresh.",
    ),
    "ceilings-contended": _M(
        "Other processes ran while the ceilings were measured, so some may be too low; ceilings that "
        "are too low flatter the fractions.",
        "Measure again on a quiet machine: `llmprof ceilings --refresh`.",
    ),
    "clock-differs": _M(
        "The GPU ran at another clock in this phase than when its matmul ceiling was read, so the "
        "ceiling is scaled by the ratio of the two.",
        "Lock the clocks to compare runs.",
    ),
    "contended": _M(
        "Other processes, the hypervisor or a lower clock disturbed some rounds. Disturbed rounds are "
        "left out while enough others remain.",
        "Stop other programs, or use fewer threads than there are free cores.",
    ),
    "counted": _M(
        "Bytes and FLOPs follow from shapes and stored tensors; no hardware counter confirmed them. "
        "The real traffic can be larger, so GB/s are a lower bound.",
        "Where Nsight Compute may read counters, compare with `llmprof ncu`.",
    ),
    "compiled-steps": _M(
        "Kernels that torch.compile makes belong to several op groups. Counted ops and the times of "
        "groups are those of the engine's own kernels, scaled to the compiled step.",
        "Trust the times of whole steps. For single groups measure execution.mode=eager too.",
    ),
    "compiled-while-timed": _M(
        "Code was made by torch.compile inside a timed round, which waited for it.",
        "Raise measure.warmup, or give the run fewer shapes of steps.",
    ),
    "cpu-quota": _M(
        "The container may use less CPU time than its threads would take, and all of them stand still "
        "when it is used up. Rounds in which that happened are left out.",
        "Lift the limit, or give the run fewer threads.",
    ),
    "does-not-fit": _M(
        "By the same sums as `llmprof plan`, this needs more memory than there is.",
        "Store fewer bytes (weights.quantization, kv_cache.dtype), or use fewer or shorter sequences.",
    ),
    "dram-not-reached": _M(
        "No buffer that fits is large enough to be sure that reads reach DRAM.",
        "Free memory, then `llmprof ceilings --refresh`.",
    ),
    "dtype-unavailable": _M(
        "This device or this torch has no matmul of that dtype, so it has no ceiling.",
        "Nothing, unless you expected it: then look at `llmprof doctor`.",
    ),
    "dtype-without-ceiling": _M(
        "Some arithmetic runs in a dtype whose matmul ceiling was not measured; another dtype's "
        "stands in for it.",
        "`llmprof ceilings --refresh` measures what is missing.",
    ),
    "dtype-without-fast-path": _M(
        "The processor has no faster instructions for this narrow dtype: it saves bytes, not arithmetic.",
        "For prefill, compare with fp32 before choosing the dtype.",
    ),
    "far-below-datasheet": _M(
        "The measured ceiling is a small part of what the vendor states, more than a kernel explains.",
        "Look for a power limit, a low clock, or another process on the device.",
    ),
    "few-rounds": _M(
        "With so few rounds an interval cannot reach 95 %: it is the smallest to the largest value, "
        "and its true confidence is printed.",
        "Raise measure.rounds.",
    ),
    "fixed-cost-high": _M(
        "The fixed cost per op, measured with empty ops, times the ops of this group is more than the "
        "group took. The loss below zero shows by how much it is overstated here.",
        "Read fixed cost and loss of this group together; their sum is measured.",
    ),
    "fused-kernels": _M(
        "Decode steps of few rows ran kernels of this engine that join a product with its norm, gate or "
        "addition. They start fewer kernels; whether each reads its weights as fast as the library's "
        "product has not been measured on this device.",
        "Compare `execution.fused=off` with `on` before you take a low fraction for the device's.",
    ),
    "fusion-not-measured": _M(
        "The prediction switches between fused kernels and one for every op. Bytes, FLOPs and launches "
        "are counted; how fast the other kernels read is taken from those that ran.",
        "Measure both with `llmprof compare`.",
    ),
    "grouped-scale": _M(
        "Steps of the pass that times op groups were slower or faster than clean steps by more than "
        "15 %; their shares were scaled.",
        "Quiet the machine and run again before trusting the split; the step time is unaffected.",
    ),
    "held-back": _M(
        "The device's own counters say that power or temperature held its clock down.",
        "Check cooling and the power limit. Ceilings read beside the round saw the same clock.",
    ),
    "latent-scales": _M(
        "The scales of a quantized cache are counted as if every layer had heads of one size.",
        "Take the KV bytes as approximate.",
    ),
    "level-in-doubt": _M(
        "A virtual machine is told of a whole socket's cache, of which it may own a part, so reads of "
        "medium size may come from cache or from DRAM.",
        "The bandwidth is measured either way; only the name of the level is in doubt.",
    ),
    "memory-freed": _M(
        "Device memory became free between two rounds that this run did not free: another process used "
        "the device, and its bandwidth as well.",
        "Measure again without the other process.",
    ),
    "no-ceilings": _M(
        "No ceiling was read beside the rounds: times are measured, nothing is judged.",
        "Let the run finish, or measure again.",
    ),
    "no-compute-roof": _M(
        "The device's arithmetic rate is not known for this dtype, so only bandwidth limits the "
        "predicted speeds.",
        "Take speeds of large batches as too high.",
    ),
    "no-flop-formula": _M(
        "An op that looks like matrix work has no FLOP formula, so no FLOP/s is claimed.",
        "Register a formula with torch.utils.flop_counter.",
    ),
    "no-ledger": _M(
        "Group times, readings or costs are missing, so the step is not split.",
        "Keep `grouped` in measure.passes.",
    ),
    "not-settled": _M(
        "Step times were still falling or rising when the measurement began.",
        "Quiet the machine, or warm up longer.",
    ),
    "not-tested": _M(
        "The number of warm-up rounds was given, so whether they were enough was not tested.",
        "Leave measure.warmup at auto.",
    ),
    "on-paper": _M(
        "Bytes follow from the configuration alone; no weight file was looked at.",
        "Name the real file or folder for exact bytes.",
    ),
    "one-of-ranks": _M(
        "Several processes share the model. Bytes, FLOPs, memory and times are those of the first one; "
        "tokens are those of all together.",
        "Nothing: multiply by the ranks where a total is wanted.",
    ),
    "ops-not-counted": _M(
        "Operators were not counted, so each call of a cost counts as one op: the fixed cost is a "
        "lower bound, the loss an upper one.",
        "Keep `counting` in measure.passes.",
    ),
    "other-environment": _M(
        "The two sides ran with other software or on another machine, which can explain a difference.",
        "Measure both in one environment.",
    ),
    "outputs-differ": _M(
        "The two sides gave other tokens from the same prompt: they did not do the same work.",
        "Check correctness before comparing speed.",
    ),
    "own-cost": _M(
        "The instruments take more than 1 % of a clean step.",
        "Measure a larger model or batch, where they matter less.",
    ),
    "packed-file": _M(
        "The file's weights are rounded already; formats are compared with what they stand for.",
        "Use an unquantized file to judge a format by itself.",
    ),
    "packed-weights": _M(
        "Weight bytes are those of the packed file; an engine that unpacks at load reads more.",
        "Set weights.dtype to see the unpacked bytes.",
    ),
    "padding": _M(
        "Part of the computed tokens is padding of a static batch; it is not in any rate.",
        "Set batching.policy=continuous.",
    ),
    "partial": _M(
        "The measurement was cut short: what was completed is kept and judged.",
        "Run it again to the end.",
    ),
    "phase-not-in-base": _M(
        "The base run did not measure this phase, so there is nothing to predict it from.",
        "Measure a base run that has the phase.",
    ),
    "power-limited": _M(
        "The device's power limit is below the one for which the vendor states its peaks.",
        "Compare MFU with other machines only at the same limit.",
    ),
    "preempted": _M(
        "The KV cache ran full: sequences gave up their blocks and were computed again, which counts "
        "as time and not as tokens.",
        "Raise kv_cache.memory_bytes, or lower batching.max_sequences.",
    ),
    "pressure": _M(
        "Other programs of this machine waited for a CPU for much of the time. It tells that the "
        "machine was busy, not that this run lost anything.",
        "Quiet the machine where the intervals are too wide.",
    ),
    "random-weights": _M(
        "Weights are random numbers of the model's shape: times and bytes are real, the text is not.",
        "Use a real model where tokens or expert routing matter.",
    ),
    "ranks-share-memory": _M(
        "Several ranks share one machine's memory and caches, while the ceilings were read by one of "
        "them alone: fractions of a roof say little, and there is no verdict.",
        "Judge tensor parallel on GPUs; here it shows that the tokens agree.",
    ),
    "rejected": _M(
        "Requests that can never fit were turned away; rates and latencies are of the others.",
        "Raise kv_cache.memory_bytes, or shorten the requests.",
    ),
    "shared-states": _M(
        "States of linear layers are taken to be spread evenly over the devices.",
        "Check with the engine that you will run.",
    ),
    "telemetry": _M(
        "The device does not tell some of what is asked of it; those fields are empty, with the reason.",
        "`llmprof doctor` names the remedy for each.",
    ),
    "threads-sleep": _M(
        "OpenMP was told to let waiting threads sleep. Waking them costs tens of microseconds, at the start "
        "of every op: a decode step of the demo took about twice as long.",
        "Unset OMP_WAIT_POLICY, GOMP_SPINCOUNT or KMP_BLOCKTIME, whichever the message names.",
    ),
    "throttled": _M(
        "The device reported that heat or its power supply held the clock down.",
        "Check cooling and power. Ceilings read beside the round saw the same clock.",
    ),
    "trace-above-roof": _M(
        "Single ops were faster than their roofs: a cache served bytes that were counted, or the "
        "ceiling beside the tracing pass was low.",
        "Trust their times, not their losses.",
    ),
    "trace-contended": _M(
        "The tracing pass was disturbed: times of single ops are those of a busy machine.",
        "Stop other programs and trace again.",
    ),
    "trace-empty": _M(
        "The tracing pass recorded no op of this phase.",
        "On CUDA, see in `llmprof doctor` whether CUPTI may record.",
    ),
    "trace-slower": _M(
        "The traced step was slower than the clean one, so its ops are too.",
        "Compare ops with each other, not with the clean step.",
    ),
    "trace-unmapped": _M(
        "Part of the traced time belongs to no op group, and the table of ops does not show it.",
        "Take the table as incomplete by that share.",
    ),
    "uniform-routing": _M(
        "Every choice of experts is taken to be equally likely; real routing is skewed and reads fewer.",
        "Give recorded routing (routing.kind=recorded) for a real workload.",
    ),
    "unknown-keys": _M(
        "The file was written by a newer llmprof, and some of what it says is not read.",
        "Upgrade llmprof.",
    ),
    "unmapped": _M(
        "Part of the step is in op groups that were timed or costed, but not both.",
        "Take the ledger as incomplete by that share.",
    ),
    "vision-apart": _M(
        "The image encoder is not in these figures.",
        "Add its weights and work yourself if images are processed.",
    ),
}


def meaning_of(code: str) -> str:
    """Both sentences for a tooltip; empty for a code of another version."""
    found = MEANINGS.get(code)
    return "" if found is None else f"{found.meaning} What to do: {found.action}"
