"""Archives a study, described as a Workflow Run RO-Crate (w3id.org/ro/wfrun/workflow)."""

import json
import mimetypes
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from sharebench.core.files import REPOSITORY, read_json
from sharebench.datasets import archive, dataset
from sharebench.model.records.references import device_name, read_device
from sharebench.model.records.types import NodeFacts
from sharebench.model.spec import parse_spec
from sharebench.study.public import public_spec

METADATA = "ro-crate-metadata.json"
PROFILES = (
    "https://w3id.org/ro/wfrun/process/0.6",
    "https://w3id.org/ro/wfrun/workflow/0.6",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.1",
)
ENVIRONMENT = ("envs/sharebench.txt", "envs/tenant-cpu.txt", "envs/tenant-gpu.txt")
LICENCE = "https://spdx.org/licenses/Apache-2.0"


def published_config(manifest: dict[str, Any]) -> bytes:
    """config.yaml, with which others repeat the study."""
    config = manifest["config"] | {"from": [], "measured_elsewhere": False}
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True).encode()


def write(data: Path, results: Path, target: Path) -> None:
    """Archive the study whose cells are under `data` and whose tables and report are under `results`.

    Raises OSError.
    """
    manifest = read_json(results / "manifest.json", "config", "created_epoch_seconds")
    files: dict[str, Path | bytes] = dict(measured_files(results, data))
    # Tables that the study does not have were removed when its own were written.
    derived = [*results.glob("tables/*"), results / "manifest.json", results / "report.html"]
    files |= {path.relative_to(results).as_posix(): path for path in derived if path.is_file()}
    files["config.yaml"] = published_config(manifest)
    files["workflow/Snakefile"] = REPOSITORY / "Snakefile"
    files |= {path: REPOSITORY / path for path in ENVIRONMENT}
    device = read_device(data / "nodes" / "device.json")["node"]
    described = metadata(sorted(files), manifest, device)
    files[METADATA] = (json.dumps(described, indent=1, ensure_ascii=False) + "\n").encode()
    archive.write(target, files, manifest["created_epoch_seconds"])


def measured_files(described: Path, data: Path) -> Iterator[tuple[str, bytes]]:
    """Name and public content of each measured file in `data` of the study of the manifest in `described`."""
    study = dataset.read_study(described, str(described))
    for name in dataset.study_files(study):
        if (path := data / name).is_file():
            with_spec = name.endswith("/raw.json") or name.startswith("calibration/")
            yield name, public_record(path.read_bytes()) if with_spec else path.read_bytes()


def public_record(content: bytes) -> bytes:
    """A record or calibration whose spec has public paths; the same bytes where nothing was private."""
    record = json.loads(content)
    spec = parse_spec(record["spec"])
    if (public := public_spec(spec)) == spec:
        return content
    return json.dumps({**record, "spec": public.text}, ensure_ascii=False).encode()


def metadata(names: list[str], manifest: dict[str, Any], node: NodeFacts) -> dict[str, Any]:
    """The RO-Crate metadata for an archive of these files; `node` is the device of the records."""
    # Importing this takes a third of a second, and only archives need it.
    from rocrate.model import ContextEntity
    from rocrate.rocrate import ROCrate

    crate = ROCrate()
    created = datetime.fromtimestamp(manifest["created_epoch_seconds"], UTC).isoformat(timespec="seconds")
    device = device_name(node)
    crate.name = f"What sharing costs: {device}"
    crate.description = (
        f"sharebench: {', '.join(manifest['requested']['strategies'])} with"
        f" {', '.join(map(str, manifest['requested']['replicas']))} tenants on {device}."
    )
    crate.datePublished = created
    crate.license = LICENCE
    workflow = crate.add_workflow(
        dest_path="workflow/Snakefile",
        main=True,
        lang="snakemake",
        lang_version=manifest["versions"]["snakemake"],
        properties={"name": "sharebench", "version": manifest["git_commit"] or "not known"},
    )
    entities = {
        name: crate.add_file(
            dest_path=name, properties={"encodingFormat": mimetypes.guess_type(name)[0] or "text/plain"}
        )
        for name in names
        if name != "workflow/Snakefile"
    }
    run = crate.add_action(
        workflow,
        identifier=f"#run-{manifest['run_id']}",
        object=[entities["config.yaml"], *(entities[name] for name in ENVIRONMENT)],
        result=[entity for name, entity in entities.items() if name != "config.yaml" and name not in ENVIRONMENT],
        properties={
            "name": f"Run {manifest['run_id']} on {device}",
            "description": " ".join(manifest["argv"]),
            "endTime": created,
            "actionStatus": {"@id": "http://schema.org/CompletedActionStatus"},
        },
    )
    crate.root_dataset["mentions"] = [run]
    profiles = [ContextEntity(crate, url, {"@type": "CreativeWork", "version": url.split("/")[-1]}) for url in PROFILES]
    crate.root_dataset["conformsTo"] = [crate.add(profile) for profile in profiles]
    described: dict[str, Any] = crate.metadata.generate()
    return described
