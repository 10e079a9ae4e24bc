"""What a user's manifest may not have is refused in one line, when the config is checked."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from sharebench.model.user_manifest import ManifestError, split_pod


def refusal(folder: Path, own: dict[str, Any], spec: dict[str, Any]) -> str:
    """The line for a pod with these fields, and these of its container."""
    server = {"name": "server", "image": "x:1", "resources": {"limits": {"nvidia.com/gpu": 1}}} | own
    spec = spec | {"containers": [server, *spec.get("containers", [])]}
    (folder / "mine.yaml").write_text(yaml.safe_dump({"kind": "Pod", "spec": spec}))
    with pytest.raises(ManifestError) as refused:
        split_pod(str(folder / "mine.yaml"))
    line = str(refused.value)
    assert line.startswith(f"{folder}/mine.yaml: ") and "\n" not in line and "1234" not in line
    return line


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"args": ["--port", 8000]}, "args has 8000, which is not text; write '8000'"),
        ({"command": ["a", True]}, "command has true, which is not text; write 'true'"),
        ({"args": "--x 1"}, "args is not a list; write one, such as [--port, '8000']"),
        (
            {"ports": [{"name": "http"}]},
            "ports is not a list whose items have a containerPort; write - containerPort: ",
        ),
        ({"ports": [{"containerPort": "80"}]}, "ports is not a list whose items have a containerPort"),
        ({"env": {"A": "1"}}, "env is not a list whose items have a name; write - name"),
        ({"env": [{"value": "1"}]}, "env is not a list whose items have a name"),
        ({"env": [{"name": "A", "value": None}, {"name": "PIN", "value": 1234}]}, "env: the value of PIN is not text"),
        ({"volumeMounts": "data"}, "volumeMounts is not a list whose items have a name"),
        ({"securityContext": "x"}, "securityContext is not a mapping"),
    ],
)
def test_a_field_of_a_wrong_type_is_refused(own: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert f"server: {words}" in refusal(tmp_path, own, {})


@pytest.mark.parametrize(
    ("own", "spec", "words"),
    [
        ({"ports": [{"containerPort": 80, "hostPort": 80}]}, {}, "with hostPort only one tenant would start on a node"),
        ({"ports": [{"containerPort": 18765}]}, {}, "containerPort 18765 is our client's; give it another"),
        ({}, {"volumes": [{"name": "sharebench-code", "emptyDir": {}}]}, "a volume has our name 'sharebench-code'"),
    ],
)
def test_what_tenants_cannot_have_twice_is_refused(
    own: dict[str, Any], spec: dict[str, Any], words: str, tmp_path: Path
) -> None:
    assert words in refusal(tmp_path, own, spec)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"securityContext": [1]}, "the pod: securityContext is not a mapping"),
        ({"containers": [{"name": "logs", "env": [1]}]}, "logs: env is not a list whose items have a name"),
        ({"initContainers": [{"name": "warm", "args": [1]}]}, "warm: args has 1, which is not text"),
    ],
)
def test_a_wrong_type_elsewhere_in_the_pod_is_refused(spec: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert words in refusal(tmp_path, {}, spec)
