"""The GPU of a node that NVIDIA's device plugin shares: exclusive, time-slicing and MPS.

The plugin's config-manager takes one key of a ConfigMap per node, named by a label. `ensure` adds keys of ours, sets
the label, and waits until labels, allocatable values and DaemonSet pods agree. Everything it changes is noted on the
node first, and undone by `restore`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from sharebench.core.spec import Spec
from sharebench.core.strategies import Strategy, of_spec
from sharebench.nodes.contract import Evidence, Grant, NodeError, State
from sharebench.nodes.kubernetes.access.base import Access, PodNeeds
from sharebench.nodes.kubernetes.access.device_plugin import found as device_plugin_found
from sharebench.nodes.kubernetes.access.device_plugin import keys, mig_instances, shared_keys
from sharebench.nodes.kubernetes.access.device_plugin.evidence import collect
from sharebench.nodes.kubernetes.access.device_plugin.mig import Cutting
from sharebench.nodes.kubernetes.access.device_plugin.mig_instances import Cut
from sharebench.nodes.kubernetes.access.device_plugin.mig_manager import labels_of
from sharebench.nodes.kubernetes.access.device_plugin.readiness import Expected, Stability, is_about_pods, unmet
from sharebench.nodes.kubernetes.cluster import saved_state
from sharebench.nodes.kubernetes.cluster.api import ApiRefused, Json, config_map_path, pod_path
from sharebench.nodes.kubernetes.cluster.labels import CONFIG_LABEL, COUNT_LABEL, SHARING_LABEL, most_mps_clients
from sharebench.nodes.kubernetes.cluster.lease import node_digest
from sharebench.nodes.kubernetes.cluster.nvidia_stack import Configs, Installed, Part, lacks_config_map, look
from sharebench.nodes.kubernetes.cluster.versions import version_of

POLL_SECONDS = 1.0
# From this version on the plugin can put replicas on one GPU of several.
PACKED_SINCE = (0, 20)
# Seen after an API server had been away: the master of NFD went on without noticing that it was back.
LABELS_ONLY = " (only labels are behind: GPU Feature Discovery or the master of NFD may hang; restart them)"
# The plugin asks for a healthy MPS daemon every 30 s. When it has not found one by then, the daemon has started before
# its sidecar had seen the label: the container before it takes the default config (config-manager 0.19 does not wait
# for the label), and a sidecar that does not reach the daemon tells it of nothing more. It would stay idle for ever.
MPS_IDLE_SECONDS = 40.0
POKE_ANNOTATION = "sharebench/configs-changed"
# The kubelet looks at a pod's volumes every minute (syncFrequency), and up to half as much later.
RESYNC_SECONDS = 95.0


def can_pack(plugin: Part) -> bool:
    """Whether this device plugin can put tenants on one GPU of several."""
    return version_of(plugin.version) >= PACKED_SINCE


class DevicePlugin(Access):
    """The GPU as the resource of a device plugin that the node's config label sets."""

    name = "device-plugin"
    runs_mps = True

    @property
    def _installed(self) -> Installed:
        return self.cluster.installed

    def _configs(self) -> Configs:
        configs = self._installed.configs
        if configs is None:
            raise NodeError(str(self.missing()))
        return configs

    @cached_property
    def _gpus(self) -> int:
        return mig_instances.gpus(labels_of(self.cluster.read()))

    def missing(self) -> str | None:
        """What every strategy needs and the cluster lacks."""
        if self._installed.plugin is None:
            return "the cluster has no NVIDIA device plugin (a DaemonSet); install it, or the GPU operator"
        if self._installed.configs is None:
            return lacks_config_map(self._installed.plugin)
        if self._installed.discovery is None:
            return "GPU Feature Discovery is not installed, so that nothing would prove a state; set gfd.enabled: true"
        return None

    # What a cell asks.

    def infeasible(self, strategy: Strategy, replicas: int, workloads: Sequence[Mapping[str, Any]]) -> str | None:
        """What the cluster lacks, or the plugin cannot do."""
        if (why := self.missing()) is not None:
            return why
        gpus = self._gpus
        if not gpus:
            return f"the node has no label {COUNT_LABEL}: GPU Feature Discovery has not found a GPU there"
        if (why := self._cutting.infeasible(strategy, replicas)) is not None:
            return why
        if strategy.mechanisms == ("mps",):
            if replicas == 1:
                return "the device plugin has no MPS for one tenant: it refuses replicas: 1"
            most = most_mps_clients(self.cluster.read()["metadata"].get("labels", {}))
            if most is not None and replicas > most:
                return f"the GPU takes {most} MPS clients at most"
            if self._installed.mps is None:
                return "the MPS control daemon is not installed (the chart's or the operator's DaemonSet)"
        plugin = self._installed.plugin
        if gpus > 1 and replicas > 1 and not (plugin is not None and can_pack(plugin)):
            return (
                f"the node has {gpus} GPUs, over which this plugin spreads the tenants; "
                "claims (config/kubernetes_dra.yaml), or a plugin from 0.20 on, can put them on one"
            )
        return None

    def grants(self, strategy: Strategy, replicas: int) -> list[Grant]:
        """One for each tenant. The plugin chooses among instances of a profile, but not how many tenants share one."""
        return [Grant(index, index % strategy.groups(replicas)) for index in range(replicas)]

    def pod(self, spec: Spec, grant: Grant) -> PodNeeds:
        """One unit of the plugin's resource, by its name for the instance's profile."""
        if spec["strategy"]["mechanisms"][0] != "mig":
            return PodNeeds(limits={keys.RESOURCE: "1"})
        cut = self._cutting.cut(of_spec(spec["strategy"]))
        return PodNeeds(limits={cut.resource(grant.group): "1"})

    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[Mapping[str, Any]]) -> Evidence:
        """What the node shows while the tenants still run, and what these saw of their device."""
        cut = self._cutting.cut(strategy)
        expected = self._expected(strategy, len(grants), cut)
        problems = self._problems(expected)
        return collect(expected, cut, problems, self.cluster.read(), grants, records)

    def plan(self, strategy: Strategy) -> str:
        """What is changed, and that it is undone."""
        recut = ""
        if "mig" in self.cluster.options["may_change"]:
            what = "MIG instances" if strategy.mechanisms[0] == "mig" else "the whole GPU"
            recut = (
                f"has the MIG manager bring about {what}, which ends all that uses the GPU, and the layout found back; "
            )
        return recut + (
            f"sets the node's label {CONFIG_LABEL} to a key of ours in the device plugin's ConfigMap, "
            "and a taint while it measures; label, ConfigMap and taints are put back when the run ends"
        )

    # States.

    def holds(self, state: State) -> bool:
        """Whether nothing differs from the state. Raises NodeError when somebody else has changed the label."""
        self._refuse_another_label(state)
        return not self._problems(self._expected(state.strategy, state.replicas, self._cutting.cut(state.strategy)))

    def _refuse_another_label(self, state: State) -> None:
        node = self.cluster.read()
        if (note := saved_state.of_access(node, self.name)) is not None:
            self._cutting.refuse_another(note)
        label = node["metadata"].get("labels", {}).get(CONFIG_LABEL)
        wanted = self._key(state.strategy, state.replicas, self._cutting.cut(state.strategy))[0]
        if label != wanted:
            raise NodeError(f"somebody set the node's label {CONFIG_LABEL} to {label or 'nothing'}, it was {wanted}")

    def _key(self, strategy: Strategy, replicas: int | None, cut: Cut) -> tuple[str, int]:
        if cut.layout:
            return keys.mig_key(cut.is_single, cut.replicas, cut.profiles), cut.replicas
        sizes = self.cluster.options["tenants"].get(strategy.mechanisms[-1], [1])
        return keys.key_of(strategy, replicas or 1, max(sizes))

    def _expected(self, strategy: Strategy, replicas: int | None, cut: Cut) -> Expected:
        key, count = self._key(strategy, replicas, cut)
        return self._cutting.expected(cut, key, keys.mechanism_of(key), count)

    def _problems(self, expected: Expected) -> list[str]:
        pods = self.cluster.pods()
        installed = look(self.cluster.daemon_sets(), pods)
        must = [part.daemon(pods) for part in (installed.plugin, installed.discovery) if part is not None]
        mps = installed.mps.daemon(pods, installed.mps.container) if installed.mps else None
        return unmet(self.cluster.read(), must, mps, expected)

    def _problems_of_mps(self) -> list[str]:
        pods = self.cluster.pods()
        mps = look(self.cluster.daemon_sets(), pods).mps
        return list(filter(None, [mps.daemon(pods, mps.container).unready() if mps else None]))

    def ensure(self, state: State) -> None:
        """Publish our keys, set the label, and wait. Raises NodeError."""
        note = self.cluster.note(self.name, self._noted)
        cut = self._cutting.cut(state.strategy)
        expected = self._expected(state.strategy, state.replicas, cut)
        key = str(expected.config)
        is_changed = self._publish_keys(key, note)
        before = self.cluster.read()["metadata"].get("labels", {}).get(CONFIG_LABEL)
        if self._cutting.is_set(cut):
            self.cluster.api.patch(self.cluster.path, {"metadata": {"labels": {CONFIG_LABEL: key}}})
        else:
            self._cutting.set(cut, note, {CONFIG_LABEL: key})
        if before != key and expected.sharing == "mps":
            # Its sidecar may not reach a daemon that runs, which would go on with the shares of the key before.
            self._delete_pod_of(self._installed.mps)
        if before == key and is_changed:
            # Whoever reads the key already does not read it again.
            for part in (self._installed.plugin, self._installed.discovery, self._installed.mps):
                self._delete_pod_of(part)
        what = f"the node did not become {state.setting}"
        self._wait(lambda: self._problems(expected), what, waits_for_mps=expected.sharing == "mps")

    def renew(self) -> None:
        """Have the pods of the MPS daemon and then of the plugin end, which looks for its daemon when it starts.

        Raises NodeError when the daemon's stays.
        """
        if (mps := self._installed.mps) is None or (pod := mps.pod_of(self.cluster.pods())) is None:
            return
        print("tenants under MPS ended badly: its daemon is started anew", file=sys.stderr)
        self._delete_pod_of(mps)
        limit, uid = self.cluster.options["switch_seconds"], pod["metadata"]["uid"]
        deadline = time.monotonic() + limit
        while any(each["metadata"].get("uid") == uid for each in self.cluster.pods()):
            if time.monotonic() > deadline:
                raise NodeError(f"the pod of {mps.name} does not end within {limit:g} s: its MPS server may hang")
            time.sleep(POLL_SECONDS)
        self._delete_pod_of(self._installed.plugin)

    def _wait(self, problems: Callable[[], list[str]], what: str, waits_for_mps: bool = False) -> None:
        limit, began = self.cluster.options["switch_seconds"], time.monotonic()
        deadline, ready = began + limit, began
        stability = Stability(self.cluster.options["stable_seconds"])
        while not stability.holds(now := time.monotonic(), found := problems()):
            if is_about_pods(found):
                ready = now
            elif waits_for_mps and found and now - ready > MPS_IDLE_SECONDS:
                self._delete_pod_of(self._installed.mps)
                ready = now
            if now > deadline:
                hint = LABELS_ONLY if found and all(each.startswith("label ") for each in found) else ""
                raise NodeError(f"{what} within {limit:g} s: {'; '.join(found) or 'it does not stay so'}{hint}")
            time.sleep(POLL_SECONDS)
        followed = stability.since_seconds or began
        if ready > began:
            self.cluster.took("plugin", ready - began)
        self.cluster.took("follow", followed - ready)
        self.cluster.took("stable", time.monotonic() - followed)

    @cached_property
    def _cutting(self) -> Cutting:
        return Cutting(self.cluster, self.name, self._hurry_volumes)

    def _delete_pod_of(self, part: Part | None) -> None:
        pod = part.pod_of(self.cluster.pods()) if part else None
        if pod is not None:
            self.cluster.api.delete(pod_path(pod))

    def _noted(self, node: Json) -> dict[str, Any]:
        self._cutting.refuse_unsettled(node)
        configs = self._configs()
        return device_plugin_found.noted(node, configs.namespace, configs.name)

    def _study_keys(self, now: str) -> list[str]:
        """Every key that the study needs, `now` first, so that the ConfigMap changes once."""
        sizes = self.cluster.options["tenants"]
        slices, shares = sizes.get("time-slicing", []), sizes.get("mps", [])
        known = [now, f"{keys.PREFIX}exclusive", *(f"{keys.PREFIX}mps-{n}" for n in shares if n > 1)]
        if slices:
            known.append(f"{keys.PREFIX}ts-{max(keys.FEWEST_REPLICAS, *slices)}")
        return list(dict.fromkeys(known))

    def _publish_keys(self, now: str, note: Mapping[str, Any]) -> bool:
        """Bring the study's keys into the ConfigMap; whether the text of the key `now` is another than before."""
        configs = self._configs()
        path = config_map_path(configs.namespace, configs.name)
        data = self.cluster.api.get(path).get("data") or {}
        base = data.get(note["label"] or configs.default, "version: v1\n")
        packed = self._gpus > 1
        texts = {key: keys.render(key, base, packed) for key in self._study_keys(now)}
        mine, nodes = node_digest(self.cluster.name), self._nodes()
        patch = shared_keys.change(self.cluster.api, path, lambda found: shared_keys.added(found, mine, nodes, texts))
        if patch:
            self._hurry_volumes((self._installed.plugin, self._installed.discovery, self._installed.mps))
        return now in patch.get("data", {})

    def _others(self) -> bool:
        return saved_state.others_in_use(self.cluster.api.get("/api/v1/nodes")["items"], self.cluster.name)

    def _nodes(self) -> set[str]:
        """The cluster's nodes, by digest."""
        return {node_digest(each["metadata"]["name"]) for each in self.cluster.api.get("/api/v1/nodes")["items"]}

    def _hurry_volumes(self, parts: Sequence[Part | None]) -> None:
        """Wait until the kubelet has brought the ConfigMap into the pods that read it.

        A config-manager whose label names a key that it does not see yet ends, and is started again ever later. The
        kubelet looks at a pod's volumes when the pod changes, and now and then. So pods are annotated, if we may.
        """
        began = time.monotonic()
        try:
            for text in (str(time.time()), None):
                self._annotate(parts, text)
                time.sleep(self.cluster.options["publish_seconds"] / 2)
        except ApiRefused as refused:
            if refused.status != 403:
                raise
            print(f"waiting {RESYNC_SECONDS:g} s for the kubelet to see the new ConfigMap", file=sys.stderr)
            time.sleep(RESYNC_SECONDS)
        self.cluster.took("publish", time.monotonic() - began)

    def _annotate(self, parts: Sequence[Part | None], text: str | None) -> None:
        pods = self.cluster.pods()
        for part in parts:
            pod = part.pod_of(pods) if part else None
            if pod is not None:
                self.cluster.api.patch(pod_path(pod), {"metadata": {"annotations": {POKE_ANNOTATION: text}}})

    def restore(self, note: dict[str, Any]) -> None:
        """Restore label and ConfigMap, and wait until the node shows what it did."""
        api = self.cluster.api
        patch = device_plugin_found.label_patch(self.cluster.read(), note)
        labels = patch["metadata"]["labels"] if patch else {}
        if not self._cutting.put_back(note, labels) and patch is not None:
            api.patch(self.cluster.path, patch)
        is_mps = patch is not None and note["shown"][SHARING_LABEL] == "mps"
        if is_mps:
            # As in `ensure`: it would go on with our shares.
            self._delete_pod_of(self._installed.mps)

        def problems() -> list[str]:
            found = self._problems_of_mps() if is_mps else []
            return found + (device_plugin_found.unrestored(self.cluster.read(), note) if patch is not None else [])

        # Without a plugin nobody reacts to the label any more.
        if patch is not None and self._installed.plugin is not None:
            self._wait(problems, "the node did not get back to how it was found", waits_for_mps=is_mps)
        # Another node may need the map until its own layout is back.
        if note["mig"]["set"] is not None and not self._others():
            self._cutting.clear_map()
        configs = Configs(note["configs"]["namespace"], note["configs"]["name"], "")
        path = config_map_path(configs.namespace, configs.name)
        # Whoever took the plugin away took its ConfigMap along.
        if api.find(path) is not None:
            mine, nodes = node_digest(self.cluster.name), self._nodes()
            shared_keys.change(api, path, lambda found: shared_keys.removed(found, mine, nodes))
