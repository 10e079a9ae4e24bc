"""What leaves this host of configs, commands and specs: nothing that is private to the host or cluster."""

import re
from collections.abc import Mapping
from typing import Any, Literal, cast

from sharebench.core.redact import redact
from sharebench.model import prometheus_options
from sharebench.model.config_nodes import KubernetesOptions
from sharebench.model.spec import Spec
from sharebench.model.study_config import StudyConfig, to_json
from sharebench.model.workload import Mix, Workload

# Published in place of a cluster's own names.
NEUTRAL_CLUSTER: Mapping[Literal["context", "node", "namespace", "priority_class"], str | None] = {
    "context": None,
    "node": "auto",
    "namespace": "sharebench",
    "priority_class": None,
}


def _public_workload(entry: Workload) -> Workload:
    """The workload with public paths of its program and of its files."""
    return entry.changed(
        command=entry.command and tuple(map(redact, entry.command)),
        manifest=entry.manifest and redact(entry.manifest),
        request=entry.request.changed(**{key: redact(path) for key, path in entry.request.files().items()}),
        load=entry.load.changed(trace=entry.load.trace and redact(entry.load.trace)),
    )


def public_spec(spec: Spec) -> Spec:
    """The spec with the paths that the public config has."""
    if isinstance(spec.workload, Mix):
        public: Workload | Mix = spec.workload.changed(tenants=tuple(map(_public_workload, spec.workload.tenants)))
    else:
        public = _public_workload(spec.workload)
    return spec.changed(workload=public, files={redact(path): digest for path, digest in spec.files.items()})


def accepted_spec(spec: Spec, file: Mapping[str, Any]) -> str:
    """The text of the spec, or of its public form where the file comes from an archive and has that."""
    if file["spec"] != spec.text and file["spec"] == (public := public_spec(spec).text):
        return public
    return spec.text


def public_config(config: StudyConfig) -> dict[str, Any]:
    """The config without what is private to this host or cluster: paths, addresses, names and the GPU's UUID."""
    nvidia = config["nvidia"]
    gpus, numbers = nvidia["gpu"], ("all", *map(str, range(1000)))
    gpu: str | list[str] = gpus if isinstance(gpus, str) and gpus in numbers else "0"
    if isinstance(gpus, list):
        gpu = [name if name in numbers else str(index) for index, name in enumerate(gpus)]
    workloads = {name: _public_workload(entry) for name, entry in config["workload_catalogue"].items()}
    cluster = cast(KubernetesOptions, {**config["kubernetes"], **NEUTRAL_CLUSTER, "tolerations": []})
    prometheus = config["prometheus"]
    if prometheus_options.has_prometheus(config["prometheus"]):
        prometheus = prometheus | {"url": "http://prometheus", "folder": None, "labels": {}}
    return to_json({**config, "workload_catalogue": workloads}) | {
        "prometheus": prometheus,
        "results": redact(config["results"]),
        "from": [redact(each) for each in config["from"]],
        "nvidia": nvidia | {"python": redact(nvidia["python"]), "gpu": gpu, "hami_core": None},
        "kubernetes": cluster,
    }


def public_command(argv: list[str], config: StudyConfig) -> list[str]:
    """The command without a cluster's own names and without the address of a Prometheus."""
    cluster, prometheus = config["kubernetes"], config["prometheus"]
    names = [cluster[key] for key, known in NEUTRAL_CLUSTER.items() if cluster[key] != known]
    names += [name for value in cluster["tolerations"] for name in (value["key"], value["value"]) if name != "true"]
    names += [prometheus["url"], prometheus["folder"], *prometheus["labels"].values()]
    flat = [name for value in names if value for name in (value if isinstance(value, list) else [value])]
    for name in sorted(flat, key=len, reverse=True):
        # A short name may be part of another word.
        argv = [re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", "…", word) for word in argv]
    return argv
