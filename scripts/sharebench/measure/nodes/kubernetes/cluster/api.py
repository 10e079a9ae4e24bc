"""Calls of the Kubernetes API in JSON, with time-outs and with retries while the server cannot be reached."""

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

from sharebench.measure.nodes.contract import NodeError

Json = dict[str, Any]
"""An object of the Kubernetes API, or a part of one."""

CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 30.0
# A restarted or replaced API server is back within this time. After it the cell is given up.
RETRY_LIMIT_SECONDS = 60.0
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0
# How often a patch is tried again while others change the same object.
PATCH_ATTEMPTS = 10
# The server ends a watch after this time, so a connection that died unnoticed does not block forever.
WATCH_TIMEOUT_SECONDS = 30
# Too many requests, and the answers of a server or load balancer that is starting or stopping.
RETRIED_STATUSES = {429, 500, 502, 503, 504}
SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
# What an audit log names a call's client, and an object's managed fields who has patched them.
CLIENT_NAME = "sharebench"
MERGE_PATCH = "application/merge-patch+json"
UNUSABLE_KUBECONFIG = "no usable kubeconfig: {}; set KUBECONFIG or kubernetes.context"
NO_KUBECONFIG = "no kubeconfig found: {} does not exist; set KUBECONFIG to the path of your own"
# Why the API server forbids a call, in this order: a part of its message, the cause, and the remedy. A policy, which is
# the first, may choose any status.
FORBIDDEN = (
    (
        r"(admission webhook|ValidatingAdmissionPolicy) .* denied",
        "a policy of the cluster refuses it",
        "have the policy except the namespace, or change the pod by kubernetes.pod",
    ),
    (
        "violates PodSecurity",
        "Pod Security refuses the pod",
        "change the manifest, or the namespace's label pod-security.kubernetes.io/enforce (baseline or privileged)",
    ),
    ("exceeded quota", "the namespace's quota is used up", "raise it, or lower kubernetes.resources"),
    (
        "must specify",
        "the namespace's quota wants requests or limits of all containers, also of our client",
        "give the namespace a LimitRange with defaults, or set them by kubernetes.pod",
    ),
    (
        "is forbidden: .*(minimum|maximum) ",
        "the namespace's LimitRange refuses the pod",
        "change kubernetes.resources or the manifest",
    ),
    (r'User ".*" cannot \w+', "not allowed", "`sharebench preflight` lists what is missing"),
)


class ApiRefused(NodeError):
    """The API server refused a call; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def accepting(*statuses: int) -> Iterator[None]:
    """A block that a refusal with one of these HTTP statuses ends without an error."""
    try:
        yield
    except ApiRefused as refused:
        if refused.status not in statuses:
            raise


def is_in_cluster() -> bool:
    """Whether this process runs in a pod with access to its cluster's API."""
    return SERVICE_ACCOUNT_TOKEN.exists() and "KUBERNETES_SERVICE_HOST" in os.environ


def conditions_of(resource: Json) -> dict[str, Json]:
    """The conditions of a node's or a pod's status, by type."""
    return {condition["type"]: condition for condition in resource.get("status", {}).get("conditions") or []}


def pod_path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def config_map_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps/{name}"


def refusal_message(status: int, body: bytes) -> str:
    """One line from the body of a refused call: the server's message, and a hint if a remedy is known."""
    try:
        reason = str(json.loads(body).get("message") or body.decode())
    except (ValueError, AttributeError):
        reason = body.decode(errors="replace")
    reason = " ".join(reason.split()) or "no reason given"
    for pattern, cause, remedy in FORBIDDEN if status == 403 else FORBIDDEN[:1]:
        if re.search(pattern, reason):
            return f"{cause}: {reason}; {remedy}"
    if status == 401:
        return f"the API server does not know us (401: {reason}); has the token expired? Log in again"
    return f"the API server refused ({status}): {reason}"


class Backoff:
    """Pauses between retries, each twice as long as the one before, until `limit_seconds` have passed."""

    def __init__(self, limit_seconds: float = math.inf) -> None:
        self._deadline = time.monotonic() + limit_seconds
        self.pause_seconds = FIRST_PAUSE_SECONDS

    @property
    def has_expired(self) -> bool:
        return time.monotonic() > self._deadline

    def pause(self) -> None:
        time.sleep(self.pause_seconds)
        self.pause_seconds = min(2 * self.pause_seconds, LONGEST_PAUSE_SECONDS)


class Api:
    """The API of one cluster, by the kubeconfig's context, or by the service account of a pod."""

    def __init__(self, context: str | None) -> None:
        # Imported here, since the import takes most of a second.
        from kubernetes import client, config
        from yaml import YAMLError

        settings, loaders = client.Configuration(), cast(Any, config)
        try:
            if context is None and is_in_cluster() and "KUBECONFIG" not in os.environ:
                loaders.load_incluster_config(client_configuration=settings)
            else:
                # The library reads the variable only when it is imported.
                file = os.environ.get("KUBECONFIG")
                loaders.load_kube_config(config_file=file, context=context, client_configuration=settings)
        except (config.ConfigException, OSError, YAMLError) as error:
            files = os.environ.get("KUBECONFIG") or str(Path("~", ".kube", "config"))
            if not any(Path(file).expanduser().exists() for file in files.split(os.pathsep)):
                raise NodeError(NO_KUBECONFIG.format(files)) from None
            raise NodeError(UNUSABLE_KUBECONFIG.format(" ".join(str(error).split()))) from None
        except (AttributeError, KeyError, TypeError, ValueError):
            # The library does not check what is in a kubeconfig.
            raise NodeError(UNUSABLE_KUBECONFIG.format("the file is not a kubeconfig")) from None
        # `_call` retries.
        settings.retries = False
        self.client = client.ApiClient(settings)
        self.client.user_agent = CLIENT_NAME
        self.retry_limit_seconds = RETRY_LIMIT_SECONDS
        """How long calls to a server that does not answer are retried."""

    def _send(self, method: str, path: str, body: Any, query: Json, answer_seconds: float) -> Any:
        headers = {
            "Accept": "application/json",
            "Content-Type": MERGE_PATCH if method == "PATCH" else "application/json",
        }
        request = self.client.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        return self.client.call_api(*request, _request_timeout=(CONNECT_TIMEOUT_SECONDS, answer_seconds))

    def _call(self, method: str, path: str, body: Any = None, query: Json | None = None) -> bytes:
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        backoff = Backoff(self.retry_limit_seconds)
        while True:
            try:
                response = self._send(method, path, body, query or {}, READ_TIMEOUT_SECONDS)
                content: bytes = response.read() or b""
                if response.status < 300:
                    return content
                if response.status not in RETRIED_STATUSES or backoff.has_expired:
                    raise ApiRefused(response.status, refusal_message(response.status, content))
            except ApiException as error:
                # The library raises this for an untrusted TLS connection.
                line = " ".join(str(error.reason).split())
                raise NodeError(
                    f"the API server cannot be trusted: {line}; is the kubeconfig this cluster's?"
                ) from None
            except (HTTPError, OSError) as error:
                if backoff.has_expired:
                    kind = type(error).__name__
                    line = f"the API server cannot be reached since {self.retry_limit_seconds:g} s ({kind})"
                    raise NodeError(line) from error
            backoff.pause()

    def get(self, path: str, **query: Any) -> Json:
        """The object or list at the path. Raises ApiRefused, and NodeError if the server stays unreachable."""
        return dict(json.loads(self._call("GET", path, query=query)))

    def find(self, path: str) -> Json | None:
        with accepting(404):
            return self.get(path)
        return None

    def get_text(self, path: str, **query: Any) -> str:
        return self._call("GET", path, query=query).decode(errors="replace")

    def create(self, path: str, body: Json, **query: Any) -> Json:
        return dict(json.loads(self._call("POST", path, body, query)))

    def patch(self, path: str, body: Json) -> None:
        """Merge `body` into the object at the path; None removes a key."""
        self._call("PATCH", path, body, {"fieldManager": CLIENT_NAME})

    def replace(self, path: str, body: Json) -> None:
        """Replace the object; refused with status 409 if it has changed since it was read."""
        self._call("PUT", path, body)

    def delete(self, path: str, grace_seconds: int | None = None, **query: Any) -> None:
        """Delete the object or collection at the path, if it exists."""
        body = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        with accepting(404):
            self._call("DELETE", path, body, query)

    def watch(self, path: str, version: str, **query: Any) -> Iterator[Json]:
        """Yield the events of a collection from that version on, until the server ends the watch. Does not retry.

        Raises OSError or urllib3's HTTPError if the connection breaks or a new list and watch may work, and ApiRefused.
        """
        parameters = {**query, "watch": "true", "resourceVersion": version, "timeoutSeconds": WATCH_TIMEOUT_SECONDS}
        response = self._send("GET", path, None, parameters, WATCH_TIMEOUT_SECONDS + READ_TIMEOUT_SECONDS)
        # GONE means that the version to watch from is too old.
        if response.status in RETRIED_STATUSES | {HTTPStatus.GONE}:
            raise ConnectionError(f"the API server does not watch now ({response.status})")
        if response.status >= 300:
            raise ApiRefused(response.status, refusal_message(response.status, response.read() or b""))
        incomplete = b""
        try:
            for chunk in response.response.stream(amt=None, decode_content=False):
                *lines, incomplete = (incomplete + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line)
        finally:
            response.response.close()


def patch_with_retry(api: Api, path: str, make_patch: Callable[[Json], Json]) -> Json:
    """Patch an object with what `make_patch` returns for its current content; retried if it changed in between.

    Returns the applied patch, which is empty if nothing had to change. Raises NodeError.
    """
    last_patch: Json = {}
    for _ in range(PATCH_ATTEMPTS):
        current = api.get(path)
        patch = make_patch(current)
        if not patch:
            # After a conflict, the previous patch had been applied and its answer was lost.
            return last_patch
        metadata = patch.get("metadata", {}) | {"resourceVersion": current["metadata"]["resourceVersion"]}
        with accepting(409):
            api.patch(path, patch | {"metadata": metadata})
            return patch
        last_patch = patch
    raise NodeError(f"someone keeps changing {path}: {PATCH_ATTEMPTS} attempts to change it failed")
