# Which GPU sharing strategy is right for me, and what will it cost? See README.md, config/README.md, results/README.md.
from snakemake.utils import min_version

min_version("9.27")


include: "rules/internals.smk"
include: "scripts/study.smk"
include: "rules/common.smk"
include: "rules/run.smk"


if not SOURCES:

    include: "rules/node.smk"
    include: "rules/probe.smk"
    include: "rules/measure.smk"


include: "rules/tables.smk"
include: "rules/decide.smk"
include: "rules/figures.smk"
include: "rules/report.smk"
include: "rules/publish.smk"


rule all:
    default_target: True
    input:
        deliverables(),
    message:
        "Everything is there"


onstart:
    begin_run()


onsuccess:
    end_run(succeeded=True)


onerror:
    end_run(succeeded=False)
