# The node: its facts, the gate of each strategy, and the way back.
#
# Inputs:  nothing but the config.
# Outputs: nodes/device.json, nodes/{strategy}.json
# Steps:   characterise_node writes down what is shared. configure_node sets the state of a strategy's first feasible
#          cell, so that a strategy that cannot be set up fails once; it does not promise the node's state later,
#          which every cell ensures for itself. restore brings the node back to its original state.


rule characterise_node:
    output:
        "<results>/nodes/device.json",
    log:
        "<results>/logs/nodes/device.log",
    priority: len(STUDY.cells) + 2
    handover: True
    conda:
        "../envs/sharebench.yaml"
    params:
        **parts(lambda _: STUDY.node_spec()),
        **JOB,
        results=RESULTS,
        code=lambda _: STUDY.node_code(),
    message:
        "Looking at the node"
    shell:
        "{params.python:q} {params.script:q} characterise_node --results {params.results:q} --out {output:q} 2> {log:q}"


rule configure_node:
    input:
        device="<results>/nodes/device.json",
    output:
        "<results>/nodes/{strategy}.json",
    log:
        "<results>/logs/nodes/{strategy}.log",
    priority: strategy_rank
    handover: True
    conda:
        "../envs/sharebench.yaml"
    params:
        **parts(lambda wildcards: STUDY.strategy_spec(wildcards.strategy)),
        **JOB,
        results=RESULTS,
        code=lambda _: STUDY.node_code(),
    message:
        "Setting the node to {wildcards.strategy}"
    shell:
        "{params.python:q} {params.script:q} configure_node --results {params.results:q} --strategy {wildcards.strategy:q}"
        " --out {output:q} 2> {log:q}"


rule restore:
    log:
        "<results>/logs/nodes/restore.log",
    handover: True
    conda:
        "../envs/sharebench.yaml"
    params:
        **JOB,
        results=RESULTS,
    message:
        "Restoring the node"
    shell:
        "{params.python:q} {params.script:q} restore --results {params.results:q} 2> {log:q}"


rule plan:
    log:
        "<results>/logs/plan.log",
    conda:
        "../envs/sharebench.yaml"
    params:
        **JOB,
        results=RESULTS,
        # A function's text is taken as it is, braces too.
        config=lambda _: canonical_json(STUDY.config),
        argv=lambda _: canonical_json(sys.argv[1:]),
    message:
        "Planning"
    shell:
        "{params.python:q} {params.script:q} plan --results {params.results:q} --config {params.config:q}"
        " --argv {params.argv:q} 2> {log:q}"
