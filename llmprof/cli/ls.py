"""`llmprof ls`: the saved runs."""

from datetime import UTC, datetime

from llmprof.cli.options import Json
from llmprof.cli.streams import print_json, result_console


def ls(json: Json = False) -> None:
    """List the saved runs, the newest last, with the median time of a decode step.

    Runs are in .llmprof/runs under the current folder; LLMPROF_DIR names another one. Every command
    that takes a run takes @last, @last~1, the start of an id, its last eight characters or a path.
    """
    from llmprof.analysis.validity import select_rounds
    from llmprof.renderers.listing_text import render_listing
    from llmprof.schema.listing import Listing
    from llmprof.store.run_summaries import list_runs
    from llmprof.store.runs import runs_folder

    listing = Listing(
        folder=str(runs_folder()), runs=list_runs(lambda rounds: select_rounds(rounds).rounds)
    )
    if json:
        print_json(listing)
    else:
        render_listing(listing, result_console(), now=datetime.now(UTC))
