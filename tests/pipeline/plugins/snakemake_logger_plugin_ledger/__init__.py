"""A Snakemake logger plugin that writes down which jobs started and which failed, one JSON line each.

Found through PYTHONPATH. It adds to what Snakemake prints and changes none of it, so that tests see the real console.
"""

import json
import os
from logging import LogRecord
from pathlib import Path

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

FILE_VARIABLE = "SHAREBENCH_TEST_LEDGER"
WILDCARDS = ("strategy", "workload", "replicas", "repeat")


class LogHandler(LogHandlerBase):
    """Appends to the file that the environment names."""

    writes_to_stream = False
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        self.names: dict[int, dict[str, str]] = {}

    def emit(self, record: LogRecord) -> None:
        """One line for every job that starts, and for every job that fails."""
        said = vars(record)
        if said.get("event") == LogEvent.JOB_INFO:
            what = "/".join(said["wildcards"][name] for name in WILDCARDS if name in said["wildcards"])
            self.names[said["jobid"]] = {"rule": said["rule_name"], "what": what}
            self._append({"event": "started", **self.names[said["jobid"]]})
        elif said.get("event") == LogEvent.JOB_ERROR:
            self._append({"event": "failed", **self.names[said["jobid"]]})

    def _append(self, line: dict[str, str]) -> None:
        with Path(os.environ[FILE_VARIABLE]).open("a") as file:
            file.write(json.dumps(line) + "\n")
