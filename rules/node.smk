# The node: its facts, and the set-up of each strategy.
#
# Inputs:  the config
# Outputs: nodes/device.json, nodes/{strategy}.json
# Steps:   characterise_node records the shared device. configure_node sets the state of a strategy's first feasible
#          cell, so that a strategy that cannot be set up fails once. The state may change later, so every cell
#          ensures it for itself. `sharebench restore` returns the node to its saved state.

from sharebench.model.spec import describe_node


rule characterise_node:
    output:
        "<results>/nodes/device.json",
    log:
        "<results>/logs/nodes/device.log",
    priority: len(STUDY.cells) + 2
    localrule: True
    threads: MEASURING_THREADS
    resources:
        **EVERY_DEVICE,
    params:
        **JOB_PARAMS,
        node=lambda _: describe_node(STUDY.node_spec()),
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
    localrule: True
    threads: MEASURING_THREADS
    resources:
        **one_device(setup_device),
    params:
        **spec_params(lambda wildcards: STUDY.strategy_spec(wildcards.strategy)),
        **JOB_PARAMS,
        results=RESULTS,
        code=lambda _: STUDY.node_code(),
    message:
        "Setting the node to {wildcards.strategy}"
    shell:
        "{params.python:q} {params.script:q} configure_node --results {params.results:q} --strategy {wildcards.strategy:q}"
        " --out {output:q} 2> {log:q}"
