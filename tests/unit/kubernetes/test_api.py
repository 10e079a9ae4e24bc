"""Calls of the API to a fake server: retries and messages."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.cluster import api as module
from sharebench.measure.nodes.kubernetes.cluster.api import Api, ApiRefused


class Server(HTTPServer):
    """Sends `answers` in order, the last one repeatedly; `asked` has method, path and body of each call."""

    answers: list[tuple[int, Any]]
    asked: list[tuple[str, str, str]]
    tokens: list[str]
    agents: set[str]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.server.asked.append((self.command, self.path, body))
        self.server.tokens.append(self.headers.get("Authorization", ""))
        self.server.agents.add(self.headers.get("User-Agent", ""))
        status, content = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.answers, made.asked, made.tokens, made.agents = [(200, {})], [], [], set()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def opened(
    port: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scheme: str = "http",
    retry_seconds: float = 60.0,
    **user: Any,
) -> Api:
    cluster = {"name": "c", "cluster": {"server": f"{scheme}://127.0.0.1:{port}"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    config = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": user}]}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config | {"current-context": "x"}))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr(module, "RETRY_LIMIT_SECONDS", retry_seconds)
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 0.01)
    return Api(None)


@pytest.fixture
def api(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    return opened(server.server_port, tmp_path, monkeypatch)


def test_an_expired_token_is_renewed(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In managed clusters, tokens expire every 15 minutes, and a program of the kubeconfig returns new ones."""
    program = tmp_path / "get-token"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, pathlib\n"
        f"count = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "number = int(count.read_text()) + 1 if count.exists() else 1\n"
        "count.write_text(str(number))\n"
        "status = {'token': f'token-{number}', 'expirationTimestamp': '2020-01-01T00:00:00Z'}\n"
        "kind = {'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential'}\n"
        "print(json.dumps(kind | {'status': status}))\n"
    )
    program.chmod(0o755)
    run = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program), "interactiveMode": "Never"}
    api = opened(server.server_port, tmp_path, monkeypatch, exec=run)
    api.get("/api/v1/nodes/x")
    api.get("/api/v1/nodes/x")
    first, second = server.tokens
    assert first.startswith("Bearer token-") and second.startswith("Bearer token-")
    assert first != second


def test_transient_errors_are_retried(api: Api, server: Server) -> None:
    server.answers = [(503, "starting"), (429, {"message": "slow down"}), (200, {"kind": "Node"})]
    assert api.get("/api/v1/nodes/x", limit=5) == {"kind": "Node"}
    assert [path for _, path, _ in server.asked] == ["/api/v1/nodes/x?limit=5"] * 3
    assert server.agents == {"sharebench"}, "what an audit log shows"


def test_a_patch_names_who_sets_the_fields(api: Api, server: Server) -> None:
    """By this name a run knows its own cordon; a proxy may change the User-Agent, from which it would be taken."""
    api.patch("/api/v1/nodes/x", {"spec": {"unschedulable": True}})
    assert [path for _, path, _ in server.asked] == ["/api/v1/nodes/x?fieldManager=sharebench"]


def test_an_unreachable_server_fails_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(NodeError, match=r"the API server cannot be reached since 0\.6 s"):
        opened(port, tmp_path, monkeypatch, retry_seconds=0.6).get("/version")


def test_an_untrusted_server_fails_at_once(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NodeError, match=r"the API server cannot be trusted: SSLError .*SSL"):
        opened(server.server_port, tmp_path, monkeypatch, "https").get("/version")


@pytest.mark.parametrize(
    ("status", "message", "line"),
    [
        (401, "Unauthorized", "has the token expired"),
        (403, 'nodes "x" is forbidden: User "u" cannot get', "not allowed: .*cannot get.*sharebench preflight"),
        (
            403,
            'pods "p" is forbidden: violates PodSecurity "restricted:latest"',
            "^Pod Security refuses the pod: .*label pod-security.kubernetes.io/enforce",
        ),
        (
            403,
            'pods "p" is forbidden: failed quota: q: must specify limits.cpu',
            "^the namespace's quota wants .*: .*must specify limits.cpu; give the namespace a LimitRange",
        ),
        (
            403,
            'pods "p" is forbidden: exceeded quota: q',
            "^the namespace's quota is used up.*lower kubernetes",
        ),
        (403, 'pods "p" is forbidden: maximum cpu usage per Container is 1', "^the namespace's LimitRange refuses the"),
        (
            403,
            'admission webhook "validate.kyverno" denied the request: containers cannot run as root',
            "^a policy of the cluster refuses it: .*; have the policy except the namespace",
        ),
        (
            422,
            "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'gpu' with binding 'all' denied request: no GPUs here",
            "^a policy of the cluster refuses it: .*no GPUs here; have the policy except the namespace",
        ),
        (401, "ValidatingAdmissionPolicy 'gpu' denied request: log in", "^a policy of the cluster refuses it: "),
        (400, 'admission webhook "x" denied the request: no', "^a policy of the cluster refuses it: "),
        (403, "the moon cannot be full", r"^the API server refused \(403\)"),
        (422, "spec.x:\n  Invalid", r"the API server refused \(422\): spec\.x: Invalid"),
    ],
)
def test_a_refusal_is_not_retried_and_explained(api: Api, server: Server, status: int, message: str, line: str) -> None:
    server.answers = [(status, {"message": message})]
    with pytest.raises(ApiRefused, match=line) as caught:
        api.create("/api/v1/namespaces/x/pods", {"kind": "Pod"})
    assert caught.value.status == status
    assert len(server.asked) == 1


def test_find_returns_none_and_delete_ignores_what_does_not_exist(api: Api, server: Server) -> None:
    server.answers = [(404, {"message": "not found"})]
    assert api.find("/api/v1/nodes/x") is None
    api.delete("/api/v1/nodes/x")
    with pytest.raises(ApiRefused):
        api.get("/api/v1/nodes/x")


def test_a_watch_yields_the_servers_events(api: Api, server: Server) -> None:
    events = [{"type": "ADDED", "object": {"n": 1}}, {"type": "DELETED", "object": {"n": 1}}]
    server.answers = [(200, "".join(json.dumps(event) + "\n" for event in events))]
    assert list(api.watch("/api/v1/pods", "7", labelSelector="a=b")) == events
    assert "resourceVersion=7" in server.asked[0][1]


@pytest.mark.parametrize(
    ("status", "expected"), [(410, ConnectionError), (429, ConnectionError), (503, ConnectionError), (403, ApiRefused)]
)
def test_a_watch_that_is_refused_for_now_raises_a_connection_error(
    api: Api, server: Server, status: int, expected: type[Exception]
) -> None:
    server.answers = [(status, {"message": "no"})]
    with pytest.raises(expected):
        list(api.watch("/api/v1/pods", "7"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, "no kubeconfig found: .*kubeconfig does not exist; set KUBECONFIG to the path of your own"),
        ("a: [b", "no usable kubeconfig: while parsing a flow sequence .*set KUBECONFIG"),
        ("garbage", "no usable kubeconfig: the file is not a kubeconfig; set KUBECONFIG"),
        ("clusters: 3\ncontexts: []\n", "no usable kubeconfig: the file is not a kubeconfig; set KUBECONFIG"),
    ],
)
def test_an_unusable_kubeconfig_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, line: str
) -> None:
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(file))
    with pytest.raises(NodeError, match=line) as caught:
        Api(None)
    assert "\n" not in str(caught.value)
