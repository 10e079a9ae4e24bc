"""Snakemake itself takes nothing from the device while a cell is measured."""

import time

import psutil
from pipeline.harness import Checkout, start_held_in_first_cell

# Longer than the period of Snakemake's timers.
SECONDS = 1.5


def test_snakemake_sleeps_while_a_cell_is_measured(finished_on_cpu: Checkout) -> None:
    # One to be measured, and one that waits: its scheduler has something to look at.
    finished_on_cpu.delete_records("time-slicing/held/2/1", "mps/held/2/1")
    running, hold = start_held_in_first_cell(finished_on_cpu)
    scheduler = psutil.Process(running.process.pid)
    wakings = [-1]
    while len(wakings) < 10 and wakings[-1] not in wakings[:-1]:
        time.sleep(SECONDS)
        wakings.append(scheduler.num_ctx_switches().voluntary)
    hold.release()
    running.wait().ok()
    assert wakings[-1] == wakings[-2], "it woke up in every period"
