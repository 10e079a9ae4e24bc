"""Rows of preflight on the pods that a study would make: what the API server has against them, and their security."""

from collections.abc import Iterator

from sharebench.core.programs import is_program
from sharebench.core.spec import Spec, tenant_workloads
from sharebench.nodes.contract import Grant, NodeError, Settings
from sharebench.nodes.kubernetes.cluster.api import ApiRefused, Json
from sharebench.nodes.kubernetes.pods.tenants import PodTenants
from sharebench.nodes.kubernetes.preflight.components import Row, Survey

OWNER: Json = {"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}}
NOT_FOUND, FORBIDDEN = 404, 403
REFUSED = "refused: "


def pods(survey: Survey) -> Iterator[Row]:
    """A dry run of the pod of each user program, and with an overlay of each workload, alone on the GPU."""
    known: set[str] = set()
    for cell in survey.study.cells:
        spec = survey.study.spec_of(cell)
        for index, workload in enumerate(tenant_workloads(spec)):
            if workload["name"] not in known and (is_program(workload) or survey.options["pod"]):
                known.add(workload["name"])
                yield from _dry_run(survey, spec, index, workload["name"])


def _dry_run(survey: Survey, spec: Spec, index: int, workload: str) -> Iterator[Row]:
    settings: Settings = {
        "timeouts": {"start_seconds": 1, "record_seconds": 1},
        "cell_folder": "preflight",
        "loads": [{"arrival": "closed", "seed": 0, "before": 0}] * spec["replicas"],
    }
    head = f"pod of {workload}"
    try:
        tenants = survey.node.tenants(spec, settings)
        assert isinstance(tenants, PodTenants)
        body = tenants.body(OWNER, Grant(index, 0))
        body["metadata"].pop("ownerReferences")
        survey.api.create(tenants.collection, body, dryRun="All", fieldValidation="Strict")
    except (NodeError, OSError) as refused:
        # Namespace and rights have rows of their own; who may make pods may still not make these.
        is_ours = isinstance(refused, ApiRefused) and refused.status in (NOT_FOUND, FORBIDDEN)
        if not is_ours or "PodSecurity" in str(refused):
            yield Row(head, f"{REFUSED}{refused}")
        return
    yield Row(head, "accepted")
