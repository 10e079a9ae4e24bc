# The start and the end of a run: who owns the results and the node, and on several devices what is done where. No
# rules here.
CLAIM = None
PLACES = None
if not FROM and uses_several_devices(STUDY.config, STUDY.node_kind):
    from sharebench.run import placement

    PLACES = placement.study_placement(STUDY, RESULTS)


def measure_at_once(places):
    """Have each device measure its cells while others measure theirs."""
    count = len(places.devices)
    about = {
        "run_cell": lambda wildcards: places.number(the_cell(wildcards)),
        "configure_node": lambda wildcards: placement.setup_device_number(
            STUDY, wildcards.strategy, places.devices
        ),
    }
    take_one_of(count, about)


def begin_run():
    """Own the results, and the node if it is needed, before the first job; one line and exit 1 if someone else does."""
    # What measures and its libraries: a run without jobs, or a dry one, starts sooner without.
    from sharebench.run import lifecycle, ownership

    global CLAIM
    needed = jobs_to_run()
    lift_job_limit()
    if set(needed) <= {"plan", "preflight", "compare", "survey"}:
        return
    try:
        CLAIM = lifecycle.begin(STUDY, RESULTS, needed, sys.argv, NOT_SHOWN, PLACES)
    except ownership.OwnershipError as error:
        sys.exit(f"not started: {error}")


def end_run(succeeded):
    """Release the results and report how it went."""
    if CLAIM is None:
        return
    from sharebench.run import lifecycle

    lifecycle.finish(CLAIM, STUDY, None if succeeded else logs_of_unfinished_jobs())
