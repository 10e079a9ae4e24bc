# What leaves here: figures for papers, and archives. Both run only when they are asked for by name.
#
# Inputs:  published/{data_set}/ (paper); everything that a run is for (archive)
# Outputs: paper/{data_set}/figures/*-{column,page}.{svg,pdf,png} with its tables/; archive.zip
# Steps:   paper draws every data set under published/ again, in the widths of papers. archive packs the study's records,
#          tables and report with checksums and a description.


rule paper_data_set:
    input:
        # Not its other files: those of a published data set do not change.
        manifest=str(PUBLISHED / "{data_set}/manifest.json"),
    output:
        directory("<results>/paper/{data_set}"),
    log:
        "<results>/logs/paper/{data_set}.log",
    conda:
        "../envs/sharebench.yaml"
    params:
        python=PYTHON,
        script=SCRIPTS / "paper.py",
        data=lambda wildcards: PUBLISHED / wildcards.data_set,
        code=[code.of_stage(stage) for stage in ("tables", "decisions", "figures")],
    message:
        "Drawing {wildcards.data_set} for papers"
    shell:
        "{params.python:q} {params.script:q} --data {params.data:q} --out {output:q} > {log:q} 2>&1"


rule paper:
    input:
        [
            RESULTS / "paper" / manifest.parent.name
            for manifest in sorted(PUBLISHED.glob("*/manifest.json"))
        ],
    message:
        "Every figure of published/ is drawn"


rule archive:
    input:
        deliverables(),
    output:
        "<results>/archive.zip",
    log:
        "<results>/logs/archive.log",
    conda:
        "../envs/sharebench.yaml"
    params:
        python=PYTHON,
        script=SCRIPTS / "archive.py",
        data=DATA,
        results=RESULTS,
        code=code.of_stage("archive"),
    message:
        "Packing {output}"
    shell:
        "{params.python:q} {params.script:q} --data {params.data:q} --results {params.results:q} --out {output:q}"
        " > {log:q} 2>&1"
