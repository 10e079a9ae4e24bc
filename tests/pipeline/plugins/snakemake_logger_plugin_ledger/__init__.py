"""A Snakemake logger plugin that writes one JSON line for each job that starts and each that fails.

Snakemake finds it through PYTHONPATH. It leaves Snakemake's own output unchanged, so tests see the real console.
"""

import json
import os
import re
from logging import LogRecord
from pathlib import Path

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

FILE_VARIABLE = "SHAREBENCH_TEST_LEDGER"
WILDCARDS = ("strategy", "workload", "replicas", "repeat")
RECORD = re.compile(r"cells/([^/]+)/([^/]+)/n(\d+)/r(\d+)/raw\.json$")


class LogHandler(LogHandlerBase):
    """Appends to the file named by the environment variable."""

    writes_to_stream = False
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        self.names: dict[int, list[dict[str, str]]] = {}

    def emit(self, record: LogRecord) -> None:
        """One line for every job that starts, and for every job that fails."""
        fields = vars(record)
        if fields.get("event") == LogEvent.JOB_INFO:
            what = "/".join(fields["wildcards"][name] for name in WILDCARDS if name in fields["wildcards"])
            # The job of a sweep measures several cells.
            cells = list(filter(None, map(RECORD.search, fields["output"])))
            self.names[fields["jobid"]] = [{"rule": "run_cell", "what": "/".join(cell.groups())} for cell in cells] or [
                {"rule": fields["rule_name"], "what": what}
            ]
            self._append("started", fields["jobid"])
        elif fields.get("event") == LogEvent.JOB_ERROR:
            self._append("failed", fields["jobid"])

    def _append(self, event: str, job: int) -> None:
        with Path(os.environ[FILE_VARIABLE]).open("a") as file:
            file.writelines(json.dumps({"event": event, **name}) + "\n" for name in self.names[job])
