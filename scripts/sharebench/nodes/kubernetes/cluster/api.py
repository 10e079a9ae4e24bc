"""Calls of the Kubernetes API in JSON, each with a time-out and retried while the server cannot be reached."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

from sharebench.nodes.contract import NodeError

Json = dict[str, Any]
"""An object of the Kubernetes API, or a part of one."""

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
# An API server that is restarted or replaced is back within this time; longer, and the cell is given up.
PATIENCE_SECONDS = 60.0
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0
# How often an object is read and changed that others change at the same time.
ATTEMPTS = 10
# The server ends a watch after this time, so that a connection that died unnoticed is not waited for.
WATCH_SECONDS = 30
# Too many requests, and what a server or a balancer before it says while it comes and goes.
RETRIED_STATUSES = {429, 500, 502, 503, 504}
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
MERGE_PATCH = "application/merge-patch+json"
NO_CLUSTER = "no usable kubeconfig: {}; set KUBECONFIG or kubernetes.context"
NO_KUBECONFIG = "no kubeconfig found: {} does not exist; set KUBECONFIG to the path of your own"


class ApiRefused(NodeError):
    """The API server said no; `status` is the HTTP status, the message the server's own words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def is_in_cluster() -> bool:
    """Whether this process runs in a pod that may speak to its cluster."""
    return SERVICE_ACCOUNT.exists() and "KUBERNETES_SERVICE_HOST" in os.environ


def conditions_of(found: Json) -> dict[str, Json]:
    """The conditions of a node's or a pod's status, by type."""
    return {each["type"]: each for each in found.get("status", {}).get("conditions") or []}


def pod_path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def config_map_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps/{name}"


def refusal(status: int, body: bytes) -> str:
    """One line from the body of a refused call: the server's message, and a hint where it is known what to do."""
    try:
        said = str(json.loads(body).get("message") or body.decode())
    except (ValueError, AttributeError):
        said = body.decode(errors="replace")
    said = " ".join(said.split()) or "no reason given"
    if status == 401:
        return f"the API server does not know us (401: {said}); has the token expired? Log in again"
    if status == 403 and "violates PodSecurity" in said:
        return f"Pod Security refuses the pod: {said}"
    if status == 403 and "exceeded quota" in said:
        return f"the namespace's quota is used up: {said}"
    if status == 403:
        return f"not allowed: {said}; `snakemake preflight` lists what is missing"
    return f"the API server refused ({status}): {said}"


class Backoff:
    """Pauses between tries: each twice as long as the one before, for `patience_seconds` in all."""

    def __init__(self, patience_seconds: float = math.inf) -> None:
        self._deadline = time.monotonic() + patience_seconds
        self.pause_seconds = FIRST_PAUSE_SECONDS

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._deadline

    def pause(self) -> None:
        time.sleep(self.pause_seconds)
        self.pause_seconds = min(2 * self.pause_seconds, LONGEST_PAUSE_SECONDS)


class Api:
    """One cluster, reached through the kubeconfig's context, or from within a pod by its service account."""

    def __init__(self, context: str | None) -> None:
        # Imported here: it takes most of a second.
        from kubernetes import client, config
        from yaml import YAMLError

        settings, loaders = client.Configuration(), cast(Any, config)
        try:
            if context is None and is_in_cluster() and "KUBECONFIG" not in os.environ:
                loaders.load_incluster_config(client_configuration=settings)
            else:
                # The library looks at the variable when it is imported.
                file = os.environ.get("KUBECONFIG")
                loaders.load_kube_config(config_file=file, context=context, client_configuration=settings)
        except (config.ConfigException, OSError, YAMLError) as error:
            files = os.environ.get("KUBECONFIG") or str(Path("~", ".kube", "config"))
            if not any(Path(each).expanduser().exists() for each in files.split(os.pathsep)):
                raise NodeError(NO_KUBECONFIG.format(files)) from None
            raise NodeError(NO_CLUSTER.format(" ".join(str(error).split()))) from None
        except (AttributeError, KeyError, TypeError, ValueError):
            # The library takes a kubeconfig for one, whatever it holds.
            raise NodeError(NO_CLUSTER.format("the file is not a kubeconfig")) from None
        # We try again ourselves.
        settings.retries = False
        self.client = client.ApiClient(settings)
        self.patience_seconds = PATIENCE_SECONDS
        """How long a server that does not answer is asked again."""

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
        return self.client.call_api(*request, _request_timeout=(CONNECT_SECONDS, answer_seconds))

    def _call(self, method: str, path: str, body: Any = None, query: Json | None = None) -> bytes:
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        backoff = Backoff(self.patience_seconds)
        while True:
            try:
                response = self._send(method, path, body, query or {}, ANSWER_SECONDS)
                content: bytes = response.read() or b""
                if response.status < 300:
                    return content
                if response.status not in RETRIED_STATUSES or backoff.is_over:
                    raise ApiRefused(response.status, refusal(response.status, content))
            except ApiException as error:
                # So the library says it when the connection is not to be trusted.
                line = " ".join(str(error.reason).split())
                raise NodeError(
                    f"the API server cannot be trusted: {line}; is the kubeconfig this cluster's?"
                ) from None
            except (HTTPError, OSError) as error:
                if backoff.is_over:
                    kind = type(error).__name__
                    line = f"the API server cannot be reached since {self.patience_seconds:g} s ({kind})"
                    raise NodeError(line) from error
            backoff.pause()

    def get(self, path: str, **query: Any) -> Json:
        """The object or list at the path. Raises ApiRefused, and NodeError when the server stays away."""
        return dict(json.loads(self._call("GET", path, query=query)))

    def find(self, path: str) -> Json | None:
        """The object at the path, None where there is none."""
        try:
            return self.get(path)
        except ApiRefused as refused:
            if refused.status == 404:
                return None
            raise

    def text(self, path: str, **query: Any) -> str:
        return self._call("GET", path, query=query).decode(errors="replace")

    def create(self, path: str, body: Json) -> Json:
        return dict(json.loads(self._call("POST", path, body)))

    def patch(self, path: str, body: Json) -> None:
        """Merge into the object at the path; None removes a key."""
        self._call("PATCH", path, body)

    def replace(self, path: str, body: Json) -> None:
        """Put this in the object's place; refused with status 409 when someone else changed it since it was read."""
        self._call("PUT", path, body)

    def delete(self, path: str, grace_seconds: int | None = None, **query: Any) -> None:
        """Remove the object or collection at the path; nothing there is fine."""
        body = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        try:
            self._call("DELETE", path, body, query)
        except ApiRefused as refused:
            if refused.status != 404:
                raise

    def watch(self, path: str, version: str, **query: Any) -> Iterator[Json]:
        """Events of a collection from that version on, until the server ends the watch; every failure is the caller's.

        Raises OSError or urllib3's HTTPError when the connection breaks or another try, from a new list on, may work;
        ApiRefused when it is refused.
        """
        asked = {**query, "watch": "true", "resourceVersion": version, "timeoutSeconds": WATCH_SECONDS}
        response = self._send("GET", path, None, asked, WATCH_SECONDS + ANSWER_SECONDS)
        # Gone: the version to watch from is too old.
        if response.status in RETRIED_STATUSES | {HTTPStatus.GONE}:
            raise ConnectionError(f"the API server does not watch now ({response.status})")
        if response.status >= 300:
            raise ApiRefused(response.status, refusal(response.status, response.read() or b""))
        rest = b""
        try:
            for chunk in response.response.stream(amt=None, decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line)
        finally:
            response.response.close()


def change(api: Api, path: str, wanted: Callable[[Json], Json]) -> Json:
    """Apply the patch that `wanted` makes of the object as it is; again when somebody changed it meanwhile.

    Returns the patch that was applied, empty where nothing was to be changed. Raises NodeError.
    """
    tried: Json = {}
    for _ in range(ATTEMPTS):
        found = api.get(path)
        patch = wanted(found)
        if not patch:
            # After a conflict: the patch before had been applied, and its answer was lost.
            return tried
        metadata = patch.get("metadata", {}) | {"resourceVersion": found["metadata"]["resourceVersion"]}
        try:
            api.patch(path, patch | {"metadata": metadata})
            return patch
        except ApiRefused as refused:
            if refused.status != 409:
                raise
            tried = patch
    raise NodeError(f"somebody keeps changing {path}: {ATTEMPTS} attempts to change it failed")
