import io

from rich.console import Console

from llmprof.renderers.quality_text import render_quality
from llmprof.schema.measurement import Caveat
from llmprof.schema.quality import FormatQuality, Quality


def row(name: str, origin: str, agreement: float) -> FormatQuality:
    return FormatQuality.model_validate(
        {
            "format": name,
            "origin": origin,
            "weight_bytes": 96 << 20,
            "perplexity": 35.514,
            "top1_agreement": agreement,
            "mean_kl_nats": 0.00085,
        }
    )


def test_one_row_per_format_within_80_columns() -> None:
    document = Quality(
        model="smollm2-135m-instruct",
        text="The lighthouse at Aske Point",
        num_tokens=608,
        rows_per_step=8,
        reference=row("fp32", "floats", 1.0),
        kernels={},
        formats=(
            row("bf16", "floats", 0.964),
            row("int4_g128_asym", "taken_over", 0.9589),
            row("int4_g128_asym", "searched", 0.65),
            row("int4_g128_asym", "plain", 0.61),
        ),
        caveats=(Caveat(code="packed-file", message="The file is rounded already"),),
    )
    stream = io.StringIO()
    render_quality(document, Console(file=stream, width=80, color_system=None))
    lines = stream.getvalue().splitlines()
    assert max(len(line) for line in lines) <= 80
    assert lines[0].startswith("smollm2-135m-instruct  The lighthouse at Aske Point, 608 tokens")
    (taken_over,) = (line.split() for line in lines if "as in the file" in line)
    assert taken_over[:6] == ["int4_g128_asym", "96.0", "MiB", "35.51", "95.9", "%"]
    assert taken_over[6] == "0.00085"
    assert sum(line.startswith("int4_g128_asym") for line in lines) == 3
    assert lines[-1] == "Note: The file is rounded already."
