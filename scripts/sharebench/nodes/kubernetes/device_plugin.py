"""A node of a cluster whose GPU NVIDIA's device plugin shares: exclusive, time-slicing and MPS.

The plugin's config-manager takes one key of a ConfigMap per node, named by a label. `switch` adds keys of ours, sets
the label, and waits until labels, allocatable values and DaemonSet pods agree. Everything it changes is noted on the
node first, and undone by `restore`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sharebench.nodes.base import Evidence, Grant, NodeError, State
from sharebench.nodes.kubernetes import keys, original, strangers
from sharebench.nodes.kubernetes.cluster_node import PRODUCT_LABEL, ClusterNode
from sharebench.nodes.kubernetes.evidence import collect
from sharebench.nodes.kubernetes.installed import Configs, Part, look
from sharebench.nodes.kubernetes.lease import node_digest
from sharebench.nodes.kubernetes.readiness import CONFIG_LABEL, COUNT_LABEL, Expected, Stability, allocatable, unmet
from sharebench.strategies import Strategy
from sharebench.tenants.pods import sweep

POLL_SECONDS = 1.0
# From this version on the plugin can put replicas on one GPU of several.
PACKED_SINCE = (0, 20)
# Seen after an API server had been away: the master of NFD went on without noticing that it was back.
LABELS_ONLY = " (only labels are behind: GPU Feature Discovery or the master of NFD may hang; restart them)"
POKE_ANNOTATION = "sharebench/configs-changed"


def version_of(text: str) -> tuple[int, ...]:
    """`v0.19.3` as numbers; empty where it is none."""
    parts = text.removeprefix("v").split("-")[0].split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


class DevicePluginNode(ClusterNode):
    """A node that is set by the device plugin's config label."""

    # What a cell asks.

    def infeasible(self, strategy: Strategy, replicas: int, workloads: Sequence[Mapping[str, Any]] = ()) -> str | None:
        """What the cluster lacks, or the plugin cannot do."""
        if (why := self.missing()) is not None:
            return why
        labels = self.read()["metadata"].get("labels", {})
        if not self.gpus:
            return f"the node has no label {COUNT_LABEL}: GPU Feature Discovery has not found a GPU there"
        if any(name.startswith("nvidia.com/mig-") for name in allocatable(self.read())) or "-MIG-" in labels.get(
            PRODUCT_LABEL, ""
        ):
            return "the node's GPUs are cut by MIG, so that only MIG instances can be used"
        if strategy.mechanisms == ("mps",):
            if replicas == 1:
                return "the device plugin has no MPS for one tenant: it refuses replicas: 1"
            if self.installed.mps is None:
                return "the MPS control daemon is not installed (the chart's or the operator's DaemonSet)"
        if self.gpus > 1 and replicas > 1 and not self._can_pack():
            return (
                f"the node has {self.gpus} GPUs, over which this plugin spreads the tenants; "
                "from 0.20 on it can put them on one"
            )
        return None

    def _can_pack(self) -> bool:
        plugin = self.installed.plugin
        return plugin is not None and version_of(plugin.version) >= PACKED_SINCE

    def grants(self, strategy: Strategy, replicas: int) -> list[Grant]:
        """One unit of the plugin's resource for each tenant."""
        return [Grant(index, 0) for index in range(replicas)]

    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[Mapping[str, Any]]) -> Evidence:
        """What the node shows while the tenants still run, and what these saw of their device."""
        expected = self._expected(strategy, len(grants))
        problems = self._problems(expected)
        return collect(expected, problems, self.read(), records)

    def plan(self, strategy: Strategy) -> str:
        """What is changed, and that it is undone."""
        return (
            f"sets the node's label {CONFIG_LABEL} to a key of ours in the device plugin's ConfigMap, "
            "and a taint while it measures; label, ConfigMap and taints are put back when the run ends"
        )

    def sweep(self) -> None:
        """Remove what a run that died left in our namespace, and bring the node back if one left it changed."""
        sweep(self.api, self.options["namespace"], {strangers.OWNER_LABEL: node_digest(self.name)})
        if original.of(self.read()) is not None:
            print("bringing the node back to how a run that did not end well had found it", file=sys.stderr)
            self._move(None)
        self._refuse_strangers()

    # States.

    def ensure(self, state: State) -> None:
        """Bring the node into the state; one that has suffered meanwhile is set up anew. Raises NodeError.

        Raises NodeError, too, when somebody else has changed the label, or taken the node.
        """
        self._lease.renew(self._run_id)
        if self.current() == state.key:
            self._refuse_another_label(state)
        expected = self._expected(state.strategy, state.replicas)
        if self.current() != state.key or self._problems(expected):
            self._move(state)

    def _refuse_another_label(self, state: State) -> None:
        label = self.read()["metadata"].get("labels", {}).get(CONFIG_LABEL)
        wanted = self._key(state.strategy, state.replicas)[0]
        if label != wanted:
            raise NodeError(f"somebody set the node's label {CONFIG_LABEL} to {label or 'nothing'}, it was {wanted}")

    def restore(self) -> bool:
        """Bring the node back to its original state; False when nothing of it was changed."""
        if original.of(self.read()) is None:
            self._note(None)
            return False
        self._move(None)
        return True

    def _key(self, strategy: Strategy, replicas: int | None) -> tuple[str, int]:
        sizes = self.options["tenants"].get(strategy.mechanisms[-1], [1])
        return keys.key_of(strategy, replicas or 1, max(sizes))

    def _expected(self, strategy: Strategy, replicas: int | None) -> Expected:
        key, count = self._key(strategy, replicas)
        return Expected(key, keys.mechanism_of(key), count, self.gpus)

    def _problems(self, expected: Expected) -> list[str]:
        pods = self.pods()
        installed = look(self._daemon_sets(), pods)
        must = [part.daemon(pods) for part in (installed.plugin, installed.discovery) if part is not None]
        mps = installed.mps.daemon(pods, installed.mps.container) if installed.mps else None
        return unmet(self.read(), must, mps, expected)

    def switch(self, state: State | None) -> None:
        """Note the original state, set the label, and wait; with None bring everything back. Raises NodeError."""
        if state is None:
            self._put_back()
            return
        self._refuse_strangers()
        key, _ = self._key(state.strategy, state.replicas)
        self._note_original()
        self._publish_keys(key)
        # DaemonSets do not tolerate it, and a switch starts and stops their pods.
        self._set_taint(present=False)
        before = self.read()["metadata"].get("labels", {}).get(CONFIG_LABEL)
        self.api.patch(self._path, {"metadata": {"labels": {CONFIG_LABEL: key}}})
        if before != key and all(keys.PREFIX + "mps" in (each or "") for each in (before, key)):
            # Its sidecar may not reach the running daemon, which would go on with the shares of the key before.
            self._delete_pod_of(self.installed.mps)
        expected = self._expected(state.strategy, state.replicas)
        self._wait(lambda: self._problems(expected), f"the node did not become {state.setting}")
        self._set_taint(present=True)
        self._refuse_strangers()

    def _wait(self, problems: Callable[[], list[str]], what: str) -> None:
        limit = self.options["switch_seconds"]
        deadline = time.monotonic() + limit
        stability = Stability(self.options["stable_seconds"])
        while not stability.holds(time.monotonic(), found := problems()):
            if time.monotonic() > deadline:
                hint = LABELS_ONLY if found and all(each.startswith("label ") for each in found) else ""
                raise NodeError(f"{what} within {limit:g} s: {'; '.join(found) or 'it does not stay so'}{hint}")
            time.sleep(POLL_SECONDS)

    def _delete_pod_of(self, part: Part | None) -> None:
        pod = part.pod_of(self.pods()) if part else None
        if part is not None and pod is not None:
            self.api.delete(f"/api/v1/namespaces/{part.namespace}/pods/{pod['metadata']['name']}")

    def _config_map(self, configs: Configs) -> tuple[str, dict[str, str]]:
        path = f"/api/v1/namespaces/{configs.namespace}/configmaps/{configs.name}"
        return path, self.api.get(path).get("data") or {}

    def _note_original(self) -> None:
        node = self.read()
        if original.of(node) is None:
            _, configs = self._configs()
            text = original.noted(node, configs.namespace, configs.name, self._config_map(configs)[1])
            self.api.patch(self._path, {"metadata": {"annotations": {original.ANNOTATION: text}}})

    def _study_keys(self, now: str) -> list[str]:
        """Every key that the study needs, `now` first, so that the ConfigMap changes once."""
        sizes = self.options["tenants"]
        slices, shares = sizes.get("time-slicing", []), sizes.get("mps", [])
        known = [now, f"{keys.PREFIX}exclusive", *(f"{keys.PREFIX}mps-{n}" for n in shares if n > 1)]
        if slices:
            known.append(f"{keys.PREFIX}ts-{max(keys.FEWEST_REPLICAS, *slices)}")
        return list(dict.fromkeys(known))

    def _publish_keys(self, now: str) -> None:
        _, configs = self._configs()
        path, data = self._config_map(configs)
        note = original.of(self.read()) or {}
        base = data.get(note.get("label") or configs.default, "version: v1\n")
        packed = self.gpus > 1
        texts = {key: keys.render(key, base, packed) for key in self._study_keys(now)}
        changed = {key: text for key, text in texts.items() if data.get(key) != text}
        if changed:
            self.api.patch(path, {"data": changed})
            self._hurry_volumes()

    def _hurry_volumes(self) -> None:
        """Have the kubelet bring the ConfigMap into the pods that read it now, not within its minute.

        A config-manager whose label names a key that it does not see yet ends, and is started again ever later. The
        kubelet looks at a pod's volumes when the pod changes.
        """
        for text in (str(time.time()), None):
            pods = self.pods()
            for part in (self.installed.plugin, self.installed.discovery, self.installed.mps):
                pod = part.pod_of(pods) if part else None
                if part is not None and pod is not None:
                    path = f"/api/v1/namespaces/{part.namespace}/pods/{pod['metadata']['name']}"
                    self.api.patch(path, {"metadata": {"annotations": {POKE_ANNOTATION: text}}})
            time.sleep(self.options["publish_seconds"] / 2)

    def _put_back(self) -> None:
        node = self.read()
        note = original.of(node)
        if note is None:
            return
        self._set_taint(present=False)
        patch = original.label_patch(node, note)
        if patch is not None:
            self.api.patch(self._path, patch)
            self._wait(lambda: original.unrestored(self.read(), note), "the node did not get back to how it was found")
        if not original.others_in_use(self.api.get("/api/v1/nodes")["items"], self.name):
            configs = Configs(note["configs"]["namespace"], note["configs"]["name"], "")
            path, data = self._config_map(configs)
            if changed := original.keys_patch(data, note):
                self.api.patch(path, changed)
        self.api.patch(self._path, {"metadata": {"annotations": {original.ANNOTATION: None}}})
