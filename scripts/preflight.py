"""Say what a cluster has for the study, which strategies it can do, and what is missing."""

import argparse
import json
import sys

from sharebench.nodes.contract import NodeError
from sharebench.study.study import Study


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="normalised config, as JSON")
    study = Study(parser.parse_args().config)
    if study.node_kind != "kubernetes":
        asked = f"preflight looks at a cluster, and the node is {study.node_kind!r}"
        print(f"  {asked}; add --configfile config/kubernetes.yaml, or one of yours with node: kubernetes", flush=True)
        return 1
    from sharebench.nodes.kubernetes.preflight import preflight

    try:
        lines, is_fit = preflight.inspect(study)
    except NodeError as error:
        print(f"  failed: {error}", flush=True)
        return 1
    print("\n".join(lines), flush=True)
    return 0 if is_fit else 1


if __name__ == "__main__":
    sys.exit(main())
