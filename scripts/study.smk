# Opens the study of the config. This file is here because Snakemake makes modules next to an included file importable,
# which is how the other files find the library of this checkout, installed or not. There are no rules here.
import sys

import record_schema
from sharebench.core.files import SCRIPTS
from sharebench.datasets import dataset
from sharebench.model.config import load as configuration
from sharebench.model.config.files import OWN_FILES
from sharebench.model.config.repeated import repeated_options
from sharebench.study.open_study import open_study

if not {"{", "}"}.isdisjoint(workflow.basedir):
    raise Refused(
        f"this checkout is in {workflow.basedir}, and Snakemake takes a brace for a wildcard; move it elsewhere"
    )
if twice := "\n".join(repeated_options(sys.argv[1:])):
    raise Refused(twice)
# No rule names its packages: Snakemake itself imports them to read these files, so a job has them from the interpreter
# that runs it.
if has_deployment_method():
    raise Refused(
        "--software-deployment-method: jobs run with the interpreter that runs snakemake; leave it out, and make that "
        "one's environment with `make install`, or with conda: PIP_NO_DEPS=1 conda env create --file envs/sharebench.yaml; "
        "in that: pip install --no-deps --no-build-isolation --editable ."
    )
if not record_schema.is_current():
    # Every cell would be measured, and its record refused.
    raise Refused(
        f"{record_schema.SCHEMA_PATH.name} has another form than the types of a record; type `make docs`"
    )


for NAME in OWN_FILES:

    configfile: SCRIPTS.parent / "config" / NAME


try:
    STUDY = open_study(config, config_files())
    GIVEN_CONFIG, SOURCES = STUDY.config, [Path(each) for each in STUDY.config["from"]]
    if SOURCES:
        dataset.refuse_ignored(command_line_config())
        STUDY = dataset.open_for_rebuild(SOURCES[0])
        dataset.check_complete(STUDY)
    # The question comes from the command line, its config files, and the defaults.
    ADVICE_QUESTION = dataset.resolve_question(
        GIVEN_CONFIG, given_config(), command_line_config(), STUDY
    )
    STUDY = dataset.apply_question(STUDY, ADVICE_QUESTION)
    EXCLUDED_NOTE = dataset.excluded_cells_note(STUDY)
    RESULTS = dataset.results_root(STUDY.config)
    DATA = dataset.verified_folder(SOURCES[0]) if SOURCES else RESULTS
    OTHER_STUDIES = dataset.other_studies(SOURCES) if SOURCES else []
except (configuration.ConfigError, dataset.DataSetError) as error:
    raise Refused(str(error))

config = STUDY.config
# Params of every rule. Snakemake does not track a Path among them, so another interpreter invalidates nothing.
JOB_PARAMS = {"python": Path(sys.executable), "script": SCRIPTS / "job.py"}
TABLES_DIGEST = dataset.tables_digest(STUDY)
QUESTION_DIGEST = dataset.question_digest(ADVICE_QUESTION, STUDY)


pathvars:
    results=str(RESULTS),
    data=str(DATA),


wildcard_constraints:
    strategy="[a-z][a-z0-9-]*",
    workload=r"[a-z][a-z0-9_.-]*(\+[a-z][a-z0-9_.-]*)?",
    replicas=r"\d+",
    repeat=r"\d+",
