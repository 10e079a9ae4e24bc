# Measuring: calibration and the cells.
#
# Inputs:  nodes/device.json, nodes/{strategy}.json
# Outputs: calibration/{workload}.json, cells/{strategy}/{workload}/n{replicas}/r{repeat}/{raw.json,telemetry.csv}
# Steps:   calibrate runs each workload alone on the exclusive device. run_cell waits for those of all its tenants,
#          ensures the node's state, runs the tenants for a window, or for one per load of a sweep, and removes them.
#          Nothing else runs on its device meanwhile. `exec` spares us bash's message on a killed job, with all its arguments.
#          No input is `ancient`: whatever invalidates a calibration or a node's state invalidates the cells too, and
#          Snakemake (9.27) overlooks a job's own reasons to run when all its inputs are stale and ancient.
import re


rule calibrate:
    input:
        device="<results>/nodes/device.json",
    output:
        "<results>/calibration/{workload}.json",
    log:
        "<results>/logs/calibration/{workload}.log",
    priority: len(STUDY.cells) + 1
    localrule: True
    threads: MEASURING_THREADS
    resources:
        **EVERY_DEVICE,
    params:
        **spec_params(calibration_spec),
        **JOB_PARAMS,
        results=RESULTS,
        code=lambda wildcards: STUDY.code(wildcards.workload),
    message:
        "Calibrating {wildcards.workload}"
    shell:
        "exec {params.python:q} {params.script:q} calibrate --results {params.results:q} --workload {wildcards.workload:q}"
        " --code {params.code:q} --device {input.device:q} --out {output:q} 2> {log:q}"


# A rule for cells with a start of their own, and one for the loads of each sweep, which share a start. The loads of a
# sweep may differ between starts where cells are excluded, hence the lookahead for the rest of the path.
SWEEPS = STUDY.sweep_jobs(RESULTS)
SWEPT = "|".join(map(re.escape, sorted({load for loads in SWEEPS for load in loads})))
for NUMBER, (LOADS, STARTS) in enumerate({("{workload}",): [], **SWEEPS}.items()):
    TITLE = STARTS[0].workload if STARTS else "{wildcards.workload}"
    CELLS = cells_of(LOADS)

    rule:
        name:
            f"run_cell_{NUMBER}_{TITLE}" if STARTS else "run_cell"
        input:
            device="<results>/nodes/device.json",
            node="<results>/nodes/{strategy}.json",
            calibrations=lambda wildcards, cells=CELLS: calibration_files(
                cells(wildcards)
            ),
        output:
            raw=cell_files("raw.json", LOADS),
            telemetry=cell_files("telemetry.csv", LOADS),
        log:
            cell_files("run.log", LOADS)[0],
        wildcard_constraints:
            **start_constraints(STARTS, SWEPT),
        priority: lambda wildcards, cells=CELLS: max(map(STUDY.rank, cells(wildcards)))
        localrule: True
        threads: MEASURING_THREADS
        resources:
            **one_device(lambda wildcards, cells=CELLS: cell_device(cells(wildcards))),
        params:
            **spec_params(
                lambda wildcards, cells=CELLS: STUDY.start_spec(cells(wildcards)[0])
            ),
            **JOB_PARAMS,
            results=RESULTS,
            code=lambda wildcards, cells=CELLS: STUDY.code(cells(wildcards)[0].workload),
        message:
            f"Measuring {{wildcards.strategy}} x {{wildcards.replicas}}, {TITLE}, repeat {{wildcards.repeat}}"
        shell:
            "exec {params.python:q} {params.script:q} run_cell --results {params.results:q} --raw {output.raw:q}"
            " --code {params.code:q} --calibrations {input.calibrations:q} 2> {log:q}"
