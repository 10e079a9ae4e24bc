"""Print the dashboard for Grafana; config/cluster/grafana.json is what it prints."""

import json

from sharebench.dashboard import dashboard


def main() -> None:
    print(json.dumps(dashboard(), indent=2))


if __name__ == "__main__":
    main()
