"""A Prometheus server for tests, which finds its targets in files."""

import contextlib
import json
import math
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sharebench.measure.nodes.host.programs.tenants import free_port
from sharebench.read.histogram import Histogram
from tenant.contract import upper_seconds
from tenant.exposition import BOUNDS

PROGRAM = shutil.which("prometheus")
MISSING = "there is no prometheus here (Debian: apt-get install prometheus)"
START_SECONDS = 300.0
ROUNDED = 1 - 1e-9


@dataclass
class Prometheus:
    """A server in a folder; it can be killed and restarted on the same data. `jobs` are additional scrape configs."""

    folder: Path
    program: str | Path | None = PROGRAM
    jobs: tuple[dict[str, Any], ...] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def targets(self) -> Path:
        """The folder of its target files."""
        return self.folder / "targets"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self.targets.mkdir(parents=True, exist_ok=True)
        self.write_config()
        assert self.program is not None
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    self.program,
                    f"--config.file={self.folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            assert self.process.poll() is None and time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.05)

    def write_config(self) -> None:
        """Write its scrape configs."""
        jobs: list[dict[str, Any]] = [
            {"job_name": "tenants", "file_sd_configs": [{"files": [f"{self.targets}/*.json"]}]},
            *self.jobs,
        ]
        # JSON is YAML.
        (self.folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))

    def reload(self, jobs: tuple[dict[str, Any], ...]) -> None:
        """Let it scrape these additional jobs from now on."""
        self.jobs = jobs
        self.write_config()
        if self.process is not None:
            self.process.send_signal(signal.SIGHUP)

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def kill(self) -> None:
        """Kill the server, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query; raises HTTPError where the expression does not parse."""
        parameters = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{parameters}", timeout=120) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return result


def assert_counts_agree(record: dict[str, Any]) -> None:
    """Assert that Prometheus has counts and sums of the tenants, except for what it cannot know at either edge.

    There a straight line between two scrapes stands for a program that may run in bursts. What is inside the window is
    in the tenant's own timeline; what is outside is at most what fits between two scrapes.
    """
    window = record["window"]
    seconds = window["end_epoch_seconds"] - window["start_epoch_seconds"]
    for tenant, seen in zip(record["tenants"], record["prometheus"]["tenants"], strict=True):
        gap, slots = seen["longest_gap_seconds"], tenant["timeline"]
        edge = math.ceil(gap / slots["slot_seconds"]) + 1
        for name, most in (("count", gap / tenant["min_seconds"] + 1), ("sum_seconds", gap + tenant["max_seconds"])):
            one = 1 if name == "count" else tenant["max_seconds"]
            assert sum(slots[name][edge:-edge]) - one <= seen[name] <= tenant[name] + 2 * most, (name, gap)
        assert seen["scrapes"] >= seconds / gap - 1 > 0 and seen["resets"] == 0


def assert_quantiles_agree(record: dict[str, Any]) -> None:
    """Assert that each quantile from Prometheus lies in the exported bucket of the tenant's own quantile.

    `increase` covers only the time from the first scrape in the window to the last. Iterations in an interval at either
    end may be missing, more where a program runs in bursts, so the tenant's quantile is taken lower and higher.
    """
    watched = record["prometheus"]
    window_seconds = record["window"]["end_epoch_seconds"] - record["window"]["start_epoch_seconds"]
    between_ratio = 2 * watched["scrape_seconds"] / window_seconds
    uppers = [upper_seconds(index) for index in BOUNDS]
    for tenant, numbers in zip(record["tenants"], watched["tenants"], strict=True):
        own = Histogram.from_sparse(tenant["histogram"])
        missing_ratio = max(between_ratio, 1 - numbers["count"] / own.count)
        for q, value in numbers["quantiles_seconds"].items():
            least, most = own.quantiles([max(float(q) - missing_ratio, 1e-9), min(float(q) + missing_ratio, 1.0)])
            low = max((upper for upper in uppers if upper <= least.low_seconds), default=0.0)
            high = min((upper for upper in uppers if upper >= most.high_seconds), default=uppers[-1])
            assert low * ROUNDED <= value <= high / ROUNDED, (q, value, low, high)


@contextlib.contextmanager
def prometheus(folder: Path, **options: Any) -> Iterator[Prometheus]:
    """A running server."""
    server = Prometheus(folder, **options)
    server.start()
    try:
        yield server
    finally:
        server.kill()
