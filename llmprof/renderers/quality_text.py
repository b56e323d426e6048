"""Weight formats against fp32, as one table of a terminal."""

from typing import Final

from rich.console import Console
from rich.text import Text

from llmprof import units
from llmprof.renderers.text_layout import wrap_all
from llmprof.renderers.whole_table import print_table
from llmprof.renderers.wording import one_line
from llmprof.schema.quality import FormatQuality, Quality

_ORIGINS: Final = {
    "floats": "",
    "taken_over": "as in the file",
    "searched": "searched scales",
    "plain": "plain rounding",
}
_COLUMNS: Final = ("format", "weights", "perplexity", "same top-1", "KL (nats)", "codes")


def render_quality(quality: Quality, console: Console) -> None:
    """Print one row per format, the reference first, and what qualifies the figures."""
    title = Text.assemble((one_line(quality.model), "bold"), f"  {one_line(quality.text)}, ")
    title.append(f"{units.exact(quality.num_tokens)} tokens, {quality.rows_per_step} per step")
    for line in wrap_all([title, Text()], console.width):
        console.print(line)
    print_table(console, _COLUMNS, _rows(quality), left=(0, len(_COLUMNS) - 1))
    for line in wrap_all(_notes(quality), console.width):
        console.print(line)


def _rows(quality: Quality) -> list[list[Text]]:
    """The reference first, which stands out."""
    return [
        [Text(cell, "bold" if row is quality.reference else "") for cell in _cells(row)]
        for row in (quality.reference, *quality.formats)
    ]


def _cells(row: FormatQuality) -> tuple[str, ...]:
    return (
        one_line(row.format),
        units.byte_count(row.weight_bytes),
        units.significant(row.perplexity, 4),
        f"{100 * row.top1_agreement:.1f} %",
        units.significant(row.mean_kl_nats, 2),
        _ORIGINS[row.origin],
    )


def _notes(quality: Quality) -> list[Text]:
    notes = [
        Text(),
        Text(
            "Against fp32 at every position: the share with the same most probable token, and the "
            "mean Kullback-Leibler divergence. Products by the kernels of decode steps."
        ),
    ]
    for caveat in quality.caveats:
        remedy = f" {caveat.remedy}" if caveat.remedy else ""
        notes.append(Text(f"Note: {one_line(caveat.message)}.{remedy}"))
    return notes
