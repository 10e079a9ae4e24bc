# Archives, and the data sets of published/. These rules run only when named as a target.
#
# Inputs:  published/{data_set}/ (paper); all results of a run (archive); its tables (publish)
# Outputs: paper/{data_set}/ with tables/, report.html and figures/*.svg; paper/together/; archive.zip;
#          published/{publication}/{study}/ in the working directory
# Steps:   paper rebuilds every data set under published/; paper_together writes findings and documents from all of
#          them. archive packs the study's records, tables and report with checksums and a description. publish lays
#          out a data set for other readers.


from publication.documents import documents_with_blocks

ROOT = Path(workflow.basedir)
PUBLISHED_DATA_SETS = dataset.list_published(PUBLISHED)
FINDINGS_SOURCE = ROOT / "docs" / "findings.yaml"
PAPER_STAGES = ("tables", "decisions", "figures", "report")


rule paper_data_sets:
    # One job loads the plotting libraries once for all: loading takes a third as long as a small data set.
    input:
        # The other files of a published data set do not change.
        [PUBLISHED / data_set / "manifest.json" for data_set in PUBLISHED_DATA_SETS],
    output:
        [directory(f"<results>/paper/{data_set}") for data_set in PUBLISHED_DATA_SETS],
    log:
        "<results>/logs/paper/data-sets.log",
    threads: 8
    params:
        **JOB_PARAMS,
        published=PUBLISHED,
        made=RESULTS / "paper",
        names=PUBLISHED_DATA_SETS,
        code=lambda _: [code.stage_fingerprint(stage) for stage in PAPER_STAGES],
    message:
        f"Making {len(PUBLISHED_DATA_SETS)} data sets again"
    shell:
        "{params.python:q} {params.script:q} paper --published {params.published:q} --out {params.made:q}"
        " --workers {threads} --names {params.names:q} > {log:q} 2>&1"


rule paper_together:
    input:
        rules.paper_data_sets.output,
        FINDINGS_SOURCE,
        PUBLISHED / "literature.csv",
        lambda _: [ROOT / path for path in documents_with_blocks(ROOT)],
        sorted(PUBLISHED.glob("*/bare-loop/*")),
        sorted(PUBLISHED.glob("*/hosts.csv")),
        [sorted((PUBLISHED / name).glob("tables/*")) for name in PUBLISHED_DATA_SETS],
    output:
        directory("<results>/paper/together"),
    log:
        "<results>/logs/paper/together.log",
    threads: 8
    params:
        **JOB_PARAMS,
        root=ROOT,
        made=RESULTS / "paper",
        code=lambda _: code.stage_fingerprint("together"),
    message:
        "Writing findings"
    shell:
        "{params.python:q} {params.script:q} paper_together --root {params.root:q} --made {params.made:q} --out {output:q}"
        " --workers {threads} 2> {log:q}"


rule paper:
    input:
        rules.paper_data_sets.output,
        # A checkout of the code alone has no documents.
        rules.paper_together.output if FINDINGS_SOURCE.exists() else [],
    message:
        "Everything of published/ is there"


rule publish:
    input:
        # Their existence shows that the data set is complete and consistent.
        rules.aggregate.output,
        # For a link the run ends here, before any job starts: Snakemake takes it for up to date, or cannot replace it.
        lambda wildcards: refuse_link("published", *wildcards),
    output:
        # `update` keeps Snakemake from removing the published folder before its replacement is ready.
        update(directory("published/{publication}/{study}")),
    log:
        "<results>/logs/publish/{publication}/{study}.log",
    wildcard_constraints:
        publication="[a-z0-9-]+",
        study="[a-z0-9-]+",
    params:
        **JOB_PARAMS,
        data=DATA,
        results=RESULTS,
    message:
        "Publishing {output}"
    shell:
        "{params.python:q} {params.script:q} publish --data {params.data:q} --results {params.results:q}"
        " --target {output:q} 2> {log:q}"


rule archive:
    input:
        deliverables(),
    output:
        "<results>/archive.zip",
    log:
        "<results>/logs/archive.log",
    params:
        **JOB_PARAMS,
        data=DATA,
        results=RESULTS,
        code=lambda _: code.stage_fingerprint("archive"),
    message:
        "Packing {output}"
    shell:
        "{params.python:q} {params.script:q} archive --data {params.data:q} --results {params.results:q}"
        " --target {output:q} > {log:q} 2>&1"
