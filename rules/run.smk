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
    from sharebench.measure.run import lifecycle, ownership

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


def end_run(succeeded):
    """Release the results and report how the run ended."""
    if CLAIM is None:
        return
    from sharebench.measure.run import lifecycle

    lifecycle.finish(CLAIM, STUDY, None if succeeded else logs_of_unfinished_jobs())
