# The start and the end of a run: who owns the results and the node. No rules here.
from sharebench.run import lifecycle, ownership

CLAIM = None


def begin_run():
    """Own the results, and the node if it is needed, before the first job; one line and exit 1 if someone else does."""
    global CLAIM
    needed = {}
    for job in workflow.dag.needrun_jobs():
        needed.setdefault(job.rule.name, []).append(
            str(job.output[0]) if job.output else ""
        )
    # Snakemake's default limit of jobs per second starts a timer for every job, which never ends: after n jobs its
    # scheduler would look at all ready jobs n times a second, during each measurement. There is nothing to limit here.
    workflow.scheduler.job_rate_limiter = None
    if set(needed) <= {"plan", "preflight", "compare"}:
        return
    try:
        CLAIM = lifecycle.begin(STUDY, RESULTS, needed, sys.argv, NOT_SHOWN)
    except ownership.OwnershipError as error:
        sys.exit(f"not started: {error}")


def end_run(succeeded):
    """Release the results and report how it went."""
    if CLAIM is None:
        return
    unfinished = [
        job for job in workflow.dag.needrun_jobs() if not workflow.dag.finished(job)
    ]
    lifecycle.finish(
        CLAIM,
        STUDY,
        None if succeeded else [Path(log) for job in unfinished for log in job.log],
    )
