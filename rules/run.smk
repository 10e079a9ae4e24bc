# Start and end of a run: the claim on results and node, and with several devices the placement of cells. There are no
# rules here.
import json

from sharebench.model.config.files import config_options

CLAIM = None
PROGRESS = None
GIVING_BACK = None
PLACEMENT = None
if not SOURCES and uses_several_devices(STUDY.config, STUDY.node_kind):
    from sharebench.measure.run import placement

    PLACEMENT = placement.study_placement(STUDY, RESULTS)


# A job that measures declares its devices as resources, of which profiles/default has one each. That saves waiting: what
# keeps jobs apart is the lock that each takes on its device (sharebench/measure/run/jobs.py).
DEVICES = [] if SOURCES else range(len(PLACEMENT.devices) if PLACEMENT else 1)
EVERY_DEVICE = {f"device_{number}": 1 for number in DEVICES}
# Jobs on several devices run at the same time on one core, too: it is the device that they need.
MEASURING_THREADS = 0 if PLACEMENT else 1


def one_device(number_of):
    """The resources of a job on the device with the number that `number_of` returns for the job's wildcards."""
    return {
        name: lambda wildcards, number=number: int(number_of(wildcards) == number)
        for number, name in enumerate(EVERY_DEVICE)
    }


def cell_device(cells):
    return PLACEMENT.number(cells[0]) if PLACEMENT else 0


def setup_device(wildcards):
    if PLACEMENT is None:
        return 0
    return placement.setup_device_number(STUDY, wildcards.strategy, PLACEMENT.devices)


def config_words():
    """The options that give another command this run's config, from any folder."""
    own = {Path(workflow.basedir) / "config" / name for name in OWN_FILES}
    files = [
        str(Path(file).resolve()) for file in config_files() if Path(file) not in own
    ]
    pairs = (
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in command_line_config().items()
    )
    return config_options(files, pairs)


def one_rule(name):
    """The rule's name; all rules for cells are one to the run."""
    return "run_cell" if name.startswith("run_cell") else name


def note_start(rule):
    PROGRESS.started(one_rule(rule))
    GIVING_BACK.started(rule)


def begin_run():
    """Claim the results, and the node if needed, before the first job; refused where another run has them."""
    # Imported late: a run without jobs, or a dry run, starts sooner without the measuring code.
    from sharebench.measure.run import (
        giving_back,
        interrupts,
        lifecycle,
        ownership,
        progress,
    )

    global CLAIM, PROGRESS, GIVING_BACK
    needed = jobs_to_run()
    if is_executed_elsewhere() and not lifecycle.NODE_RULES.isdisjoint(needed):
        raise Refused(
            "--executor: cells are measured on the host on which snakemake runs, and this executor is for other hosts; "
            "leave it out, and start snakemake on the host that has the device"
        )
    lift_job_limit()
    try:
        CLAIM = lifecycle.begin(
            STUDY,
            RESULTS,
            needed,
            sys.argv,
            EXCLUDED_NOTE,
            PLACEMENT,
            config_words(),
        )
    except ownership.OwnershipError as error:
        raise Refused(f"not started: {error}")
    GIVING_BACK = giving_back.GivingBack(STUDY, CLAIM)
    PROGRESS = progress.Progress(CLAIM)
    CLAIM.cleanups.append(PROGRESS.stop)
    interrupts.end_run_at_first(lifecycle.left_line(CLAIM, GIVING_BACK.is_back))


def end_run(succeeded):
    """Release the results and report how the run ended; exit with 1 if the node could not be restored."""
    if CLAIM is None:
        return
    from sharebench.measure.run import lifecycle
    from sharebench.read.closing import closing_lines

    unfinished = None if succeeded else logs_of_unfinished_jobs()
    is_back = GIVING_BACK.is_back
    PROGRESS.started("ending the run")
    if not lifecycle.finish(CLAIM, STUDY, unfinished, closing_lines, is_back):
        sys.exit(1)
