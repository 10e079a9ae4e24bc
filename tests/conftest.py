"""Signals of the tests' processes, and skips that CI does not accept."""

import os
import signal
import sys
from collections.abc import Generator

import pytest

# `make test` hands its own settings on to a make that a test starts, which would then name the folders that it enters.
for name in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS"):
    os.environ.pop(name, None)

# Hundreds of processes that tests start would each compile the code again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell that starts the tests in the background, or nohup, has them and what they start ignore these signals.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With SHAREBENCH_NO_SKIP=1, a test that skips fails, unless it is marked for what this machine lacks."""
    report = yield
    if report.skipped and os.environ.get("SHAREBENCH_NO_SKIP") == "1" and not hasattr(report, "wasxfail"):
        excused = {"aiperf", "browser", "cluster", "gpu", "interpreters", "prometheus", "root"} & {
            mark.name for mark in item.iter_markers()
        }
        if not excused:
            report.outcome = "failed"
            report.longrepr = f"skipped although SHAREBENCH_NO_SKIP=1: {report.longrepr}"
    return report
