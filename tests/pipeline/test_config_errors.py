"""A config that cannot be used is refused in a line for each problem, with exit code 1, and nothing is written."""

import pytest
from pipeline.harness import Checkout

from sharebench.model.capabilities import has_nvidia_gpu

# On a machine with a GPU only the interpreter of the tenants is missing.
NO_GPU_OR_PYTHON = "'/no/such/python' is not a file" if has_nvidia_gpu() else "this host, it shows no NVIDIA GPU"
# The arguments of --config, and a part of the refusal.
CASES = {
    "an unknown key": (["strategis=[mps]"], "'strategis' is an unknown key; did you mean 'strategies'?"),
    "an impossible strategy": (
        ["strategies=[mps-limited]", "node=cpu", "workloads=matmul", "window_seconds=1"],
        "'mps-limited' is impossible on the node 'cpu'",
    ),
    "an impossible workload": (
        ["node=cpu", "workloads=matmul-256-graph", "window_seconds=1"],
        "'matmul-256-graph' is impossible on the node 'cpu': a CUDA graph needs a GPU",
    ),
    "a word for a number": (["repeats=two"], "'two' is not a whole number"),
    "a folder that is none": (["from=no/such/folder"], "'no/such/folder' is not an existing folder"),
    "what a data set does not use": (["from=envs", "repeats=99"], "config: repeats: no effect with from"),
    "a GPU without what it needs": (["node=nvidia", "nvidia={python: /no/such/python}"], NO_GPU_OR_PYTHON),
}


def refused(checkout: Checkout, *targets: str, study: str | None = None, config: list[str] | None = None) -> str:
    """The lines of a run that ends before it has written anything."""
    before = checkout.files()
    result = checkout.run(*targets, study=study, config=config or [])
    assert result.code == 1
    profile, lines = result.out.split("\n", maxsplit=1)
    assert profile.startswith("Using workflow specific profile ")
    assert checkout.files() == before
    return lines.rstrip("\n")


def test_a_refused_config_is_a_line_for_each_problem_and_writes_nothing(untouched: Checkout) -> None:
    for name, (config, words) in CASES.items():
        lines = refused(untouched, config=config).splitlines()
        assert all(line.startswith("config: ") for line in lines) and words in "".join(lines), name


def test_a_config_file_with_a_duplicate_key_is_refused(untouched: Checkout) -> None:
    study = untouched.root / "twice.yaml"
    study.write_text("cpu: &of_both {cores: [0]}\nwarmup: {<<: *of_both, cores: [1],\n  cores: [2]}\n")
    line, of_the_key = refused(untouched, study="twice.yaml").splitlines()
    assert line == f"config: {study}, line 3: 'cores' is there already; remove one"
    assert of_the_key.startswith("config: warmup: 'cores' is an unknown key")


def test_a_second_option_for_a_config_is_refused(untouched: Checkout) -> None:
    result = untouched.run(options=["--configfiles", "cpu.yaml", "--config", "seed=2", "x=y z"], config=["repeats=1"])
    *_, files, pairs = result.out.splitlines()
    assert result.code == 1 and not result.jobs
    assert files.endswith("; write one: --configfile cpu.yaml simulated.yaml")
    assert pairs.endswith("; write one: --config seed=2 'x=y z' repeats=1")


def test_an_environment_that_no_job_would_use_is_refused(untouched: Checkout) -> None:
    result = untouched.run(options=["--software-deployment-method", "conda"])
    assert result.code == 1 and "jobs run with the interpreter that runs snakemake; leave it out" in result.out


def test_a_workload_whose_framework_is_not_installed_is_refused(untouched: Checkout) -> None:
    module = untouched.root / "scripts/tenant/workloads/heavy.py"
    module.write_text('import weightless\n\nFRAMEWORKS = {"cpu": ("weightless",), "cuda": ("weightless",)}\n')
    config = ["node=cpu", "workload_catalogue={heavy: {module: heavy}}", "workloads=heavy", "window_seconds=1"]
    line = refused(untouched, config=config)
    assert line.startswith("config: workloads: 'heavy' is impossible on the node 'cpu': it needs weightless, which ")
    assert "set node: nvidia" in line


def test_the_probe_of_time_slices_needs_a_gpu(untouched: Checkout) -> None:
    line = refused(untouched, "probe_timeslice", study="cpu.yaml")
    assert line.startswith("probe_timeslice needs an NVIDIA GPU on this host: ")
    assert "the node is cpu" in line and "--config node=nvidia" in line


@pytest.mark.parametrize("lines", ["", "    config: config\n"])
def test_an_import_as_a_module_is_refused_in_one_line(untouched: Checkout, lines: str) -> None:
    outer = untouched.root / "tmp/outer"
    outer.mkdir()
    module = f"module sharebench:\n    snakefile:\n        '{untouched.root / 'Snakefile'}'\n{lines}"
    (outer / "Snakefile").write_text(
        f"config['node'] = 'simulated'\n\n\n{module}\n\nuse rule * from sharebench as sb_*\n"
    )
    result = untouched.run(options=["--snakefile", str(outer / "Snakefile"), "--dry-run"])
    assert result.code == 1
    [line] = [line for line in result.out.splitlines() if not line.startswith("Using workflow specific profile ")]
    assert line.startswith("this workflow cannot be a module: ") and "`snakemake --snakefile PATH/Snakefile" in line


def test_a_new_key_of_records_that_the_schema_lacks_is_refused(untouched: Checkout) -> None:
    """Every cell would be measured in vain."""
    old = "    coverage_ratio: float\n"
    untouched.edit("scripts/tenant/contract/__init__.py", old, old + "    foo_ratio: NotRequired[float]\n")
    assert refused(untouched) == "record.schema.json has another form than the types of a record; type `make docs`"
