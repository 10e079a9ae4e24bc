"""Processes that a run has adopted from jobs that were killed."""

import subprocess
import sys
from pathlib import Path

from sharebench.measure.run import leftovers

SCRIPTS = Path(leftovers.__file__).resolve().parents[3]
# A run whose job ends at once and leaves two daemons: one without an environment, one as MPS daemons are.
JOB = """
import subprocess, sys
for environment in ({}, {"SHAREBENCH_RUN_OWNER": sys.argv[1]}):
    print(subprocess.Popen(["sleep", "60"], env=environment, start_new_session=True, stdout=subprocess.DEVNULL).pid)
"""
RUN = """
import os, subprocess, sys
from sharebench.measure.nodes.host.programs.process_tree import set_subreaper
from sharebench.measure.run import leftovers
set_subreaper(True)
command = [sys.executable, "-c", sys.argv[1], leftovers.process_identity(os.getpid())]
job = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | leftovers.run_environment("x"))
stray, daemon = map(int, job.stdout.split())
leftovers.end_strays(os.getpid())
print([leftovers.process_identity(pid) is not None for pid in (stray, daemon)])
os.kill(daemon, 9)
"""


def test_strays_end_and_daemons_that_outlive_their_job_do_not() -> None:
    command = [sys.executable, "-c", RUN, JOB]
    ended = subprocess.run(command, env={"PYTHONPATH": str(SCRIPTS)}, capture_output=True, text=True, check=True)
    assert ended.stdout == "[False, True]\n"
