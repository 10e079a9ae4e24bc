"""Restoring the node outside of a run that measures."""

import sys
from collections.abc import Sequence
from pathlib import Path

from sharebench.measure.run import interrupts, jobs, lifecycle
from sharebench.study.study import Study


def restore_node(study: Study, results: Path, config_words: Sequence[str], not_shown: str) -> int:
    """Claim the node, restore it, and release it; returns the exit status. Raises OwnershipError, SystemExit."""
    command = ["sharebench", "restore", *config_words]
    claim = lifecycle.begin(study, results, {"restore": [""]}, command, not_shown, config_words=config_words)
    interrupts.end_run_at_first(lifecycle.left_line(claim))
    print("looking for what a run has left changed", file=sys.stderr)
    try:
        with jobs.measuring_job(results) as run:
            jobs.restore(run)
    finally:
        is_restored = lifecycle.finish(claim, study, None, lambda _: [])
    return 0 if is_restored else 1
