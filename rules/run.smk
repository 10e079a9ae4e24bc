# Start and end of a run: the claim on results and node, and with several devices the placement of cells. There are no
# rules here.
CLAIM = None
PLACEMENT = None
if not SOURCE_DATA_SET and uses_several_devices(STUDY.config, STUDY.node_kind):
    from sharebench.measure.run import placement

    PLACEMENT = placement.study_placement(STUDY, RESULTS)


def measure_in_parallel(cell_placement):
    """Let every device measure its cells at the same time as the others."""
    device_numbers = {
        "run_cell": lambda wildcards: cell_placement.number(job_cell(wildcards)),
        "configure_node": lambda wildcards: placement.setup_device_number(
            STUDY, wildcards.strategy, cell_placement.devices
        ),
    }
    assign_devices(len(cell_placement.devices), device_numbers)


def begin_run():
    """Claim the results, and the node if needed, before the first job; exit with one line if another run has them."""
    # Imported late: a run without jobs, or a dry run, starts sooner without the measuring code.
    from sharebench.measure.run import interrupts, lifecycle, ownership

    global CLAIM
    needed = jobs_to_run()
    lift_job_limit()
    if set(needed) <= {"plan", "preflight", "compare", "survey"}:
        return
    try:
        CLAIM = lifecycle.begin(
            STUDY, RESULTS, needed, sys.argv, EXCLUDED_NOTE, PLACEMENT
        )
    except ownership.OwnershipError as error:
        sys.exit(f"not started: {error}")
    interrupts.end_run_at_first(lifecycle.left_line(CLAIM.record))


def end_run(succeeded):
    """Release the results and report how the run ended; exit with 1 if the node could not be restored."""
    if CLAIM is None:
        return
    from sharebench.measure.run import lifecycle

    unfinished = None if succeeded else logs_of_unfinished_jobs()
    if not lifecycle.finish(CLAIM, STUDY, unfinished):
        sys.exit(1)
