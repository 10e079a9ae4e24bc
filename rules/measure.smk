# Measuring: calibration and the cells.
#
# Inputs:  nodes/device.json, nodes/{strategy}.json
# Outputs: calibration/{workload}.json, cells/{strategy}/{workload}/n{replicas}/r{repeat}/{raw.json,telemetry.csv}
# Steps:   calibrate runs each workload alone on the exclusive device. run_cell waits for those of all its tenants,
#          ensures the node's state, runs the tenants for one window, and removes them. Nothing else runs
#          on its device meanwhile. `exec` spares us bash's message on a killed job, with all its arguments.
#          No input is `ancient`: whatever invalidates a calibration or a node's state invalidates the cells too, and
#          Snakemake (9.27) overlooks a job's own reasons to run when all its inputs are stale and ancient.


rule calibrate:
    input:
        device="<results>/nodes/device.json",
    output:
        "<results>/calibration/{workload}.json",
    log:
        "<results>/logs/calibration/{workload}.log",
    priority: len(STUDY.cells) + 1
    localrule: True
    conda:
        "../envs/sharebench.yaml"
    threads: MEASURING_THREADS
    resources:
        **EVERY_DEVICE,
    params:
        **spec_params(calibration_spec),
        **JOB_PARAMS,
        results=RESULTS,
        spec=lambda wildcards, input: calibration_spec(wildcards),
        code=lambda wildcards: STUDY.code(wildcards.workload),
    message:
        "Calibrating {wildcards.workload}"
    shell:
        "exec {params.python:q} {params.script:q} calibrate --results {params.results:q} --workload {wildcards.workload:q}"
        " --spec {params.spec:q} --code {params.code:q} --device {input.device:q} --out {output:q} 2> {log:q}"


rule run_cell:
    input:
        device="<results>/nodes/device.json",
        node="<results>/nodes/{strategy}.json",
        calibrations=cell_calibrations,
    output:
        raw="<cell>/raw.json",
        telemetry="<cell>/telemetry.csv",
    log:
        "<cell>/run.log",
    priority: cell_rank
    localrule: True
    conda:
        "../envs/sharebench.yaml"
    threads: MEASURING_THREADS
    resources:
        **one_device(cell_device),
    params:
        **spec_params(cell_spec),
        **JOB_PARAMS,
        results=RESULTS,
        spec=lambda wildcards, input: cell_spec(wildcards),
        code=cell_code,
    message:
        "Measuring {wildcards.strategy} x {wildcards.replicas}, {wildcards.workload}, repeat {wildcards.repeat}"
    shell:
        "exec {params.python:q} {params.script:q} run_cell --results {params.results:q} --spec {params.spec:q}"
        " --code {params.code:q} --calibrations {input.calibrations:q} --raw {output.raw:q} --telemetry {output.telemetry:q} 2> {log:q}"
