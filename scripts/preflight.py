"""List what a cluster has for the study, which strategies it can do, and what is missing."""

import json
from typing import Annotated

from sharebench.core import console
from sharebench.core.study_config import StudyConfig
from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.preflight import preflight
from sharebench.study.study import Study


def main(config: Annotated[StudyConfig, json.loads]) -> int:
    study = Study(config)
    if study.node_kind != "kubernetes":
        asked = f"preflight looks at a cluster, and the node is {study.node_kind!r}"
        print(f"  {asked}; add --configfile config/kubernetes.yaml, or your own with node: kubernetes", flush=True)
        return 1
    try:
        lines, is_fit = preflight.inspect(study)
    except NodeError as error:
        print(f"  failed: {error}", flush=True)
        return 1
    print("\n".join(lines), flush=True)
    return 0 if is_fit else 1


if __name__ == "__main__":
    console.script(main)
