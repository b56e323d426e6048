"""One document of each kind, with chosen figures: for the terminal, the pages and their goldens."""

from datetime import UTC, datetime, timedelta

from llmprof.analysis.compare import compare_live, compare_reports
from llmprof.analysis.metrics import metric_named
from llmprof.analysis.prediction import BaseRun, predict
from llmprof.architectures.manifest import manifest_from_config
from llmprof.architectures.source import ModelSource, resolve_model
from llmprof.planning.inspection import inspect_model
from llmprof.planning.plan import PlanRequest, make_plan
from llmprof.schema.ceilings import Ceilings, SkinnyCeiling
from llmprof.schema.comparison import Arrangement, Comparison
from llmprof.schema.confirmation import OutputComparison
from llmprof.schema.cost import Phase
from llmprof.schema.diagnosis import Check, Diagnosis
from llmprof.schema.gate_result import Check as GateCheck
from llmprof.schema.gate_result import GateArm, GateResult, GateVerdict, Judgement
from llmprof.schema.inspection import Inspection
from llmprof.schema.listing import Listing, RunSummary
from llmprof.schema.measurement import Caveat, Estimate, Source
from llmprof.schema.ncu import NcuComparison, NcuPhase
from llmprof.schema.plan import Plan, PlanRates
from llmprof.schema.prediction import Prediction
from llmprof.schema.quality import FormatQuality, Quality
from llmprof.schema.run import Tool
from llmprof.schema.settings import Quantization, RunConfig
from llmprof.schema.sweep import CellStatus, Sweep
from tests.predicted_runs import a_base_run
from tests.published import LLAMA_3_1_8B
from tests.records import a_report as a_measured_report
from tests.records import a_run_record, model_phase
from tests.sweeps import a_sweep, some_metrics
from tests.unit.ceilings.factories import NOON, a_cpu, some_ceilings


def a_comparison() -> Comparison:
    plans = [model_phase(phase, efficiency=0.6) for phase in (Phase.PREFILL, Phase.DECODE)]
    candidate = a_run_record(plans, seed=2).model_copy(update={"id": "candidate"})
    return compare_reports([a_measured_report()], [a_measured_report(candidate)])


def a_live_comparison() -> Comparison:
    """Eight pairs in one process; the candidate's decode steps reach 0.72 of their roof."""
    plans = [model_phase(Phase.PREFILL), model_phase(Phase.DECODE, efficiency=0.72)]
    base, candidate = a_run_record(rounds=8, seed=1), a_run_record(plans, rounds=8, seed=2)
    return compare_live(
        a_measured_report(base),
        a_measured_report(candidate.model_copy(update={"id": "candidate"})),
        OutputComparison(same=True, tokens=8, equal_tokens=8),
        Arrangement.ONE_PROCESS,
        not_predicted="the base run has no grouped rounds",
    )


def two_axes() -> Sweep:
    kinds, batches = ("standard", "flash"), (1, 16)
    outcomes = [
        some_metrics(batch=batch, step_s=0.02 + 0.001 * batch)
        if (kind, batch) != ("standard", 16)
        else (CellStatus.REFUSED, "needs 9 GiB, 4 GiB are free")
        for kind in kinds
        for batch in batches
    ]
    return a_sweep({"attention.kind": kinds, "workload.batch": batches}, outcomes)


def a_gate() -> GateResult:
    arm = GateArm(
        label="main",
        model="smollm2",
        versions={"torch": "2.13.0"},
        fingerprint="0123",
        output_sha256=None,
        compute_dtype="bf16",
        weight_bytes=1,
    )
    judged = Judgement(
        metric=metric_named("decode.tpot_s.p50"),
        check=GateCheck.PAIRED,
        verdict=GateVerdict.FAIL,
        tolerance=0.03,
        baseline=0.007412,
        candidate=0.007866,
        ratio=Estimate(point=1.061, low=1.052, high=1.070, confidence=0.95, num_samples=24),
        p_value=0.0002,
        minimum_detectable=0.009,
        reason="slower by more than the tolerance, in fresh processes too",
    )
    unknown = {
        "metric": metric_named("prefill.ttft_s.p50"),
        "verdict": GateVerdict.INCONCLUSIVE,
        "pairs_needed": 31,
    }
    return GateResult(
        command="run",
        created=datetime(2026, 11, 29, 14, 0, tzinfo=UTC),
        tool=Tool(version="0.1.0", argv=("llmprof",)),
        title="smollm2 b1 p512 o32",
        device="Example CPU",
        baseline=arm,
        candidate=arm.model_copy(update={"label": "branch"}),
        verdict=GateVerdict.FAIL,
        exit_code=1,
        judgements=(judged, judged.model_copy(update=unknown)),
        num_launches=4,
        elapsed_s=184.2,
    )


def a_prediction() -> Prediction:
    record = a_base_run()
    weights = record.settings.weights.model_copy(update={"quantization": Quantization.INT4})
    settings = record.settings.model_copy(update={"weights": weights})
    return predict(BaseRun.of(record), settings)


def an_inspection() -> Inspection:
    model = LLAMA_3_1_8B
    source = ModelSource(
        name=model.name,
        kind="config",
        config=model,
        manifest=manifest_from_config(model, "bf16"),
        files=(),
        tokenizer=None,
        has_weights=False,
    )
    return inspect_model(source, prompt_tokens=512, context_tokens=8192, batch=16)


def a_plan() -> Plan:
    """Llama 3.1 8B in 80 GiB, with a device that reads 2 TB/s."""
    rates = PlanRates(
        name="a device",
        read_bytes_per_s=2e12,
        flops_per_s={"bf16": 4e14},
        source=Source.DATASHEET,
        document="sheet",
    )
    request = PlanRequest(
        device_bytes=80 * 2**30,
        device_source=Source.ASSUMED,
        reserve_bytes=8 * 2**30,
        contexts=(8192, 131_072),
        rates=rates,
    )
    tool = Tool(version="0", argv=("llmprof", "plan", "llama-3.1-8b"))
    settings = RunConfig.model_validate({"model": "llama-3.1-8b"})
    return make_plan(resolve_model("llama-3.1-8b"), settings, request, tool=tool)


def some_device() -> Ceilings:
    """With skinny matmuls of two formats, measured on a machine that was busy."""
    rows = [
        SkinnyCeiling(
            format=name,
            rows=rows,
            out_features=2048,
            in_features=2048,
            level="LLC or DRAM",
            bytes_per_s=21e9 / rows,
            median_bytes_per_s=20e9 / rows,
            spread=0.125,
            kernel=f"llmprof::matvec on {name}",
        )
        for name in ("bf16", "int4_g128_asym")
        for rows in (1, 8)
    ]
    caveat = Caveat(code="ceilings-contended", message="busy", remedy="measure again")
    return some_ceilings(a_cpu(), caveats=(caveat,)).model_copy(
        update={
            "skinny": tuple(rows),
            "parts_measured_at": {"skinny": NOON},
            "contended_parts": ("skinny",),
        }
    )


LATER = NOON + timedelta(hours=5)
LISTED = a_run_record().created + timedelta(hours=3, minutes=59)


def a_diagnosis() -> Diagnosis:
    checks = (
        Check(name="torch", status="ok", detail="2.13.0+cpu, a CPU build"),
        Check(name="cores", status="warn", detail="2 of 8 usable", remedy="Give it all of them"),
        Check(
            name="DRAM counters",
            status="missing",
            detail="no uncore counters in this virtual machine; bytes are counted from shapes",
        ),
    )
    return Diagnosis(environment=a_cpu(), checks=checks)


def a_listing() -> Listing:
    record = a_run_record()
    measured = RunSummary(
        id=record.id,
        file="x.json",
        status="partial",
        created=record.created,
        model="smollm2-135m-instruct",
        device="cpu",
        dtype="bf16",
        batch=4,
        prompt_tokens=8192,
        output_tokens=32,
        decode_step_s=0.01234,
    )
    broken = RunSummary(id="broken", file="broken.json", status="unreadable", reason="no run")
    return Listing(folder="f", runs=(measured, broken))


def a_quality() -> Quality:
    def row(name: str, agreement: float) -> FormatQuality:
        return FormatQuality(
            format=name,
            origin="floats" if name != "int4" else "searched",
            weight_bytes=96 << 20,
            perplexity=35.514,
            top1_agreement=agreement,
            mean_kl_nats=0.00085,
        )

    return Quality(
        model="smollm2-135m-instruct",
        text="The lighthouse at Aske Point",
        num_tokens=608,
        rows_per_step=8,
        reference=row("fp32", 1.0),
        kernels={},
        formats=(row("bf16", 0.964), row("int4", 0.65)),
        caveats=(Caveat(code="packed-file", message="The file is rounded already"),),
    )


def some_counters() -> NcuComparison:
    phase = NcuPhase(
        phase=Phase.DECODE,
        steps=1,
        kernels=367,
        gpu_time_s=0.0123,
        dram_bytes=3.1e8,
        counted_bytes=2.7e8,
        counted_bytes_with_activations=2.9e8,
        amplification=1.15,
        hardware_flops=None,
        analytic_flops=3.1e8,
        missing={"hardware FLOP": "the file has no counter of tensor instructions"},
    )
    return NcuComparison(run_id="a-run", file="counters.csv", phases=(phase,))
