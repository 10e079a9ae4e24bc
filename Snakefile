# Which GPU sharing strategy is right for me, and what will it cost? See README.md, config/README.md, results/README.md.
from snakemake.utils import min_version

min_version("9.27")


include: "rules/internals.smk"


configfile: Path(workflow.basedir) / "config" / "strategies.yaml"
configfile: Path(workflow.basedir) / "config" / "workloads.yaml"
configfile: Path(workflow.basedir) / "config" / "config.yaml"


include: "rules/common.smk"
include: "rules/run.smk"


if not SOURCE_DATA_SET:

    include: "rules/node.smk"
    include: "rules/cluster.smk"
    include: "rules/survey.smk"
    include: "rules/probe.smk"
    include: "rules/measure.smk"
    include: "rules/join.smk"


include: "rules/tables.smk"
include: "rules/decide.smk"
include: "rules/figures.smk"
include: "rules/report.smk"
include: "rules/compare.smk"
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
