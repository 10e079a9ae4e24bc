# What leaves here: archives, and data sets of published/. All run only when asked for by name.
#
# Inputs:  published/{data_set}/ (paper); everything that a run is for (archive); its tables (publish)
# Outputs: paper/{data_set}/ with tables/, report.html and figures/*.svg; paper/together/; archive.zip;
#          published/{publication}/{study}/ in the working directory
# Steps:   paper makes every data set under published/ again; paper_together what they say together. archive packs the
#          study's records, tables and report with checksums and a description. publish lays out what others read.


from publication.documents import documents_with_blocks

ROOT = Path(workflow.basedir)
PUBLISHED_DATA_SETS = dataset.list_published(PUBLISHED)
FINDINGS = ROOT / "docs" / "findings.yaml"
PAPER_STAGES = ("tables", "decisions", "figures", "report")


rule paper_data_sets:
    # All in one job, which loads the plotting libraries once: that takes a third as long as a small data set.
    input:
        # Not their other files: those of a published data set do not change.
        [PUBLISHED / data_set / "manifest.json" for data_set in PUBLISHED_DATA_SETS],
    output:
        [directory(f"<results>/paper/{data_set}") for data_set in PUBLISHED_DATA_SETS],
    log:
        "<results>/logs/paper/data-sets.log",
    conda:
        "../envs/sharebench.yaml"
    threads: 8
    params:
        **JOB,
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
        FINDINGS,
        PUBLISHED / "literature.csv",
        lambda _: [ROOT / path for path in documents_with_blocks(ROOT)],
        sorted(PUBLISHED.glob("*/bare-loop/*")),
        [sorted((PUBLISHED / name).glob("tables/*")) for name in PUBLISHED_DATA_SETS],
    output:
        directory("<results>/paper/together"),
    log:
        "<results>/logs/paper/together.log",
    conda:
        "../envs/sharebench.yaml"
    threads: 8
    params:
        **JOB,
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
        rules.paper_together.output if FINDINGS.exists() else [],
    message:
        "Everything of published/ is there"


rule publish:
    input:
        # Of a data set that is complete, and fits together.
        rules.aggregate.output,
        # The run ends here, before anything has started: a link is up to date for Snakemake, or cannot be replaced.
        lambda wildcards: refuse_link("published", *wildcards),
    output:
        # Updated, since Snakemake would remove what was published before it is known whether this can take its place.
        update(directory("published/{publication}/{study}")),
    log:
        "<results>/logs/publish/{publication}/{study}.log",
    wildcard_constraints:
        publication="[a-z0-9-]+",
        study="[a-z0-9-]+",
    conda:
        "../envs/sharebench.yaml"
    params:
        **JOB,
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
    conda:
        "../envs/sharebench.yaml"
    params:
        **JOB,
        data=DATA,
        results=RESULTS,
        code=lambda _: code.stage_fingerprint("archive"),
    message:
        "Packing {output}"
    shell:
        "{params.python:q} {params.script:q} archive --data {params.data:q} --results {params.results:q}"
        " --target {output:q} > {log:q} 2>&1"
