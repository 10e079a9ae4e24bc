"""Snakemake itself uses no CPU while a cell is measured."""

import time

import psutil
import pytest
from pipeline.harness import Checkout, start_held_in_first_cell

# Longer than the period of Snakemake's timers.
PERIOD_SECONDS = 1.5


@pytest.mark.thorough
def test_snakemake_sleeps_while_a_cell_is_measured(finished_on_cpu: Checkout) -> None:
    # One cell is measured and one waits, so the scheduler has a job that it might look at.
    finished_on_cpu.delete_records("time-slicing/held/2/1", "mps/held/2/1")
    running, hold = start_held_in_first_cell(finished_on_cpu)
    scheduler = psutil.Process(running.process.pid)
    wake_ups = [-1]
    while len(wake_ups) < 10 and wake_ups[-1] not in wake_ups[:-1]:
        time.sleep(PERIOD_SECONDS)
        wake_ups.append(scheduler.num_ctx_switches().voluntary)
    hold.release()
    running.wait().ok()
    assert wake_ups[-1] == wake_ups[-2], "it woke up in every period"
