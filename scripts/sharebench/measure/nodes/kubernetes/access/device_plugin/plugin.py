"""Access to a node's GPU through NVIDIA's device plugin: exclusive, time-slicing, MPS and MIG.

The plugin's config-manager reads the key of a ConfigMap that a label of the node names. `ensure` adds our keys, sets
the label, and waits until labels, allocatable values and DaemonSet pods agree. The state before is saved on the node
first, and `restore` restores it.
"""

import sys
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import cast

from sharebench.core.console import format_count
from sharebench.measure.nodes.contract import Evidence, Grant, NodeError, State, item
from sharebench.measure.nodes.kubernetes.access.base import Access, PodNeeds, view_of
from sharebench.measure.nodes.kubernetes.access.device_plugin import keys, mig_instances, placeholders, readers
from sharebench.measure.nodes.kubernetes.access.device_plugin import state as plugin_state
from sharebench.measure.nodes.kubernetes.access.device_plugin.keys import PluginConfig
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig import MigPartitioner
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_instances import Partitioning
from sharebench.measure.nodes.kubernetes.access.device_plugin.placeholders import Placeholders
from sharebench.measure.nodes.kubernetes.access.device_plugin.state import Expected, PluginState
from sharebench.measure.nodes.kubernetes.access.dra.nvidia import find_driver
from sharebench.measure.nodes.kubernetes.cluster import saved_state
from sharebench.measure.nodes.kubernetes.cluster.api import (
    Json,
    config_map_path,
    patch_with_retry,
    pod_path,
)
from sharebench.measure.nodes.kubernetes.cluster.cluster import Cluster, closed_reasons
from sharebench.measure.nodes.kubernetes.cluster.lease import node_digest
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import (
    CONFIG_LABEL,
    COUNT_LABEL,
    SHARING_LABEL,
    PluginConfigMap,
    StackComponent,
    find_stack,
    labels_of,
    max_mps_clients,
    no_config_map_message,
)
from sharebench.measure.nodes.kubernetes.cluster.reservation import our_taint
from sharebench.measure.nodes.kubernetes.cluster.saved_state import AccessState
from sharebench.measure.nodes.limits import probe_variables
from sharebench.model.spec import Spec
from sharebench.model.strategy import Strategy
from tenant.contract import TenantReport

POLL_SECONDS = 1.0
# Seen after an outage of the API server: the master of NFD did not notice that the server was back.
LABELS_BEHIND_HINT = " (only labels are behind: GPU Feature Discovery or the master of NFD may hang; restart them)"
# The plugin looks for a healthy MPS daemon when it starts and every 30 s, so it is restarted once the daemon runs. If
# it finds none long after that, the daemon started with the default config, before its sidecar saw the label: the init
# container of config-manager 0.19 does not wait for the label. The daemon would then stay idle forever.
MPS_IDLE_SECONDS = 40.0


class DevicePluginAccess(Access):
    """Access by the resources of the device plugin, whose config a label of the node selects."""

    name = "device-plugin"
    runs_mps = True

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._mig = MigPartitioner(cluster, self.name)
        self._placeholders = Placeholders(cluster)

    def _config_map(self) -> PluginConfigMap:
        config_map = self.cluster.installed.config_map
        if config_map is None:
            raise NodeError(str(self.missing()))
        return config_map

    @cached_property
    def _gpus(self) -> int:
        return mig_instances.gpu_count(self.cluster.labels())

    @cached_property
    def _fallback_problem(self) -> str | None:
        source = self._config_map()
        return None if source.default else keys.fallback_problem(self.cluster.api.get(source.path), source)

    def missing(self) -> str | None:
        if self.cluster.installed.plugin is None:
            if (driver := find_driver(self.cluster.daemon_sets())) is not None:
                return (
                    f"the cluster has no NVIDIA device plugin: its DRA driver ({driver.manager}) gives GPUs to claims; "
                    "set kubernetes.access: dra, as config/kubernetes_dra.yaml does"
                )
            return "the cluster has no NVIDIA device plugin; install it, or the GPU operator (docs/cluster/install.md)"
        if self.cluster.installed.config_map is None:
            return no_config_map_message(self.cluster.installed.plugin)
        if self.cluster.installed.discovery is None:
            return "GPU Feature Discovery is not installed, so that nothing would prove a state; set gfd.enabled: true"
        return None

    # For a cell.

    def infeasible(self, strategy: Strategy, replicas: int) -> str | None:
        if reason := self.missing() or mig_instances.invalid_reason(self.cluster.labels()):
            return reason
        gpus = self._gpus
        if not gpus:
            return f"the node has no label {COUNT_LABEL}: GPU Feature Discovery has not found a GPU there"
        if reason := self._mig.infeasible(strategy, replicas):
            return reason
        if strategy.mechanism == ("mps",):
            if replicas == 1:
                return "the device plugin has no MPS for one tenant: it refuses replicas: 1"
            if replicas > (maximum := max_mps_clients(self.cluster.labels())):
                return f"the GPU takes {maximum} MPS clients at most"
            if self.cluster.installed.mps is None:
                return "the MPS control daemon is not installed (the chart's or the operator's DaemonSet)"
        if reason := self._fallback_problem:
            return reason
        if gpus > 1 and strategy.mechanism[0] != "mig":
            count = self._config(strategy, replicas, Partitioning({})).replicas
            return placeholders.no_room_reason(self.cluster.read_node(), gpus * count)
        return None

    def pod_needs(self, spec: Spec, grant: Grant) -> PodNeeds:
        """One unit of the plugin's resource for a GPU or for the instance's profile."""
        if spec.strategy.mechanism[0] != "mig":
            memory_mib = mig_instances.gpu_memory_mib(self.cluster.labels())
            limits = spec.strategy.tenant_limits(spec.replicas, grant.index)
            limit = limits.memory_bytes(None if memory_mib is None else memory_mib << 20)
            return PodNeeds(limits={keys.RESOURCE: "1"}, environment=probe_variables(limit))
        partitioning = self._mig.partitioning(spec.strategy)
        return PodNeeds(limits={partitioning.resource_of_group(grant.group): "1"})

    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[TenantReport]) -> Evidence:
        partitioning = self._mig.partitioning(strategy)
        saved = self._load_saved(self.cluster.read_node())
        expected = self._expected(strategy, len(grants), partitioning, saved)
        problems, node = self._problems(expected), self.cluster.read_node()
        found = plugin_state.evidence(expected, partitioning, problems, node, grants, records)
        if saved is not None and (gpu := saved.get("gpu")) is not None and not partitioning.layout:
            seen = [placeholders.gpu_in_view(view_of(record), gpu) for record in records]
            found.append(item("GPU that all cells have", [gpu] * len(records), seen, "tenants"))
        return found

    def plan(self, strategy: Strategy) -> str:
        mig_change = ""
        if "mig" in self.cluster.options["may_change"]:
            what = "MIG instances" if strategy.mechanism[0] == "mig" else "the whole GPU"
            mig_change = (
                f"has the MIG manager set up {what}, which ends all that uses the GPU, and restores the layout; "
            )
        others = self._gpus - 1 if strategy.mechanism[0] != "mig" else 0
        held = f"; holds {format_count(others, 'other GPU', 'other GPUs')} by placeholder pods" if others else ""
        cordon = " (a cordon while it switches)" if self.needs_cordon else ""
        return mig_change + (
            f"sets the node's label {CONFIG_LABEL} to a sharebench key in the device plugin's ConfigMap, "
            f"and a taint while it measures{cordon}{held}; label, ConfigMap and node are restored when all cells "
            "are measured"
        )

    # States.

    @property
    def needs_cordon(self) -> bool:
        return bool(self.cluster.installed.intolerant(our_taint("taint")))

    def is_in_state(self, state: State) -> bool:
        """Whether nothing differs from the state. Raises NodeError if someone else has changed the label."""
        node = self.cluster.read_node()
        if (saved := self._load_saved(node)) is not None:
            self._mig.refuse_foreign_layout(saved)
        expected = self._expected(state.strategy, state.replicas, self._mig.partitioning(state.strategy), saved)
        label = node["metadata"].get("labels", {}).get(CONFIG_LABEL)
        if label != expected.config:
            raise NodeError(
                f"someone set the node's label {CONFIG_LABEL} to {label or 'nothing'}, it was {expected.config}"
            )
        count = self._placeholder_count(expected)
        return not self._problems(expected) and (not count or self._placeholders.are_in_place(count))

    def _remove_placeholders(self) -> None:
        if self._gpus > 1:
            self._placeholders.remove()

    @staticmethod
    def _placeholder_count(expected: Expected) -> int:
        """Number of the state's placeholder pods; 0 for MIG instances, which only one GPU has."""
        return 0 if expected.instances is not None else (expected.gpus - 1) * expected.replicas

    def _config(self, strategy: Strategy, replicas: int | None, partitioning: Partitioning) -> PluginConfig:
        if partitioning.layout:
            return partitioning.plugin_config
        return keys.config_for_strategy(strategy, replicas or 1, self.cluster.max_tenants(strategy))

    def _expected(
        self, strategy: Strategy, replicas: int | None, partitioning: Partitioning, saved: PluginState | None
    ) -> Expected:
        config = self._config(strategy, replicas, partitioning)
        return self._mig.expected(partitioning, config, config.key(saved["active"] if saved else {}))

    def _problems(self, expected: Expected) -> list[str]:
        pods, node = self.cluster.pods(), self.cluster.read_node()
        return plugin_state.state_problems(node, pods, find_stack(self.cluster.daemon_sets(), pods), expected)

    def _mps_problems(self) -> list[str]:
        pods = self.cluster.pods()
        mps = find_stack(self.cluster.daemon_sets(), pods).mps
        return list(filter(None, [mps.unready_reason(pods, own_container_only=True) if mps else None]))

    def ensure(self, state: State) -> None:
        saved = self._load_or_save()
        partitioning = self._mig.partitioning(state.strategy)
        expected = self._expected(state.strategy, state.replicas, partitioning, saved)
        key = expected.config
        self._remove_placeholders()
        self._publish_configs(self._config(state.strategy, state.replicas, partitioning), saved["active"])
        before = self.cluster.labels().get(CONFIG_LABEL)
        is_mps = expected.sharing == "mps"
        is_mps_new = is_mps and bool(self._mps_problems())
        if self._mig.is_applied(partitioning):
            self.cluster.set_labels({CONFIG_LABEL: key})
        else:
            self._mig.apply(partitioning, saved, {CONFIG_LABEL: key})
        if before != key and is_mps:
            # The sidecar may not reach a running daemon, which would then keep the shares of the previous key.
            self._delete_pod(self.cluster.installed.mps)
        failure = f"the node did not become {state.setting}"
        self._await_state(lambda: self._problems(expected), failure, is_mps, is_mps_new)
        if self._placeholder_count(expected):
            # Read again, since a change of the layout saves its state too.
            saved = self._load_or_save()
            gpu = self._placeholders.fill(expected.gpus, expected.replicas, saved.get("gpu"))
            self.cluster.save_access(self.name, {**saved, "gpu": gpu})

    def restart_mps(self) -> None:
        """Restart the MPS daemon's pod and then the plugin's, which looks for its daemon when it starts.

        Raises NodeError if the daemon's pod does not end.
        """
        if (mps := self.cluster.installed.mps) is None or (pod := mps.pod_of(self.cluster.pods())) is None:
            return
        print("tenants under MPS ended badly: its daemon is restarted", file=sys.stderr)
        self._delete_pod(mps)
        limit, uid = self.cluster.options["switch_seconds"], pod["metadata"]["uid"]
        deadline = time.monotonic() + limit
        while any(each["metadata"].get("uid") == uid for each in self.cluster.pods()):
            if time.monotonic() > deadline:
                raise NodeError(f"the pod of {mps.name} does not end within {limit:g} s: its MPS server may hang")
            time.sleep(POLL_SECONDS)
        self._delete_pod(self.cluster.installed.plugin)

    def _await_state(
        self, problems: Callable[[], list[str]], failure: str, is_mps: bool, is_mps_new: bool, remedy: str = ""
    ) -> None:
        """Wait until there have been no problems for `stable_seconds`.

        Raises NodeError, which begins with `failure` and ends with `remedy`.

        With `is_mps_new`, no MPS daemon ran when the plugin looked for one.
        """
        limit, stable = self.cluster.options["switch_seconds"], self.cluster.options["stable_seconds"]
        began = ready = time.monotonic()
        since: float | None = None
        while True:
            now, found = time.monotonic(), problems()
            if not found and since is not None and now - since >= stable:
                break
            since = None if found else (now if since is None else since)
            if plugin_state.is_about_pods(found):
                ready = now
            elif is_mps_new and found:
                self._delete_pod(self.cluster.installed.plugin)
                is_mps_new, ready = False, now
            elif is_mps and found and now - ready > MPS_IDLE_SECONDS:
                self._delete_pod(self.cluster.installed.mps)
                is_mps_new, ready = True, now
            if now > began + limit:
                hint = LABELS_BEHIND_HINT if found and all(each.startswith("label ") for each in found) else ""
                if missing := self._missing_key():
                    found, hint = [missing, *found], ""
                found = [*closed_reasons(self.cluster.read_node()), *found] or ["it does not stay so"]
                raise NodeError(f"{failure} within {limit:g} s: {'; '.join(found)}{hint}{remedy}")
            time.sleep(POLL_SECONDS)
        if ready > began:
            self.cluster.note_phase("plugin", ready - began)
        self.cluster.note_phase("follow", since - ready)
        self.cluster.note_phase("stable", time.monotonic() - since)

    def _missing_key(self) -> str | None:
        """That the ConfigMap lacks the key that the node's label names, such as after GitOps has reverted it."""
        source, key = self.cluster.installed.config_map, self.cluster.labels().get(CONFIG_LABEL)
        if source is None or key is None:
            return None
        if key in ((self.cluster.api.find(source.path) or {}).get("data") or {}):
            return None
        return f"key {key} is gone from ConfigMap {source.namespace}/{source.name}: who removes it?"

    def _delete_pod(self, component: StackComponent | None) -> None:
        pod = component.pod_of(self.cluster.pods()) if component else None
        if pod is not None:
            self.cluster.api.delete(pod_path(pod))

    def _load_saved(self, node: Json) -> PluginState | None:
        return cast("PluginState | None", saved_state.load_access(node, self.name))

    def _load_or_save(self) -> PluginState:
        """The node's saved state; if there is none, save the present state. Raises NodeError."""
        node = self.cluster.read_node()
        if (saved := self._load_saved(node)) is None:
            if "mig" in self.cluster.options["may_change"]:
                self._mig.refuse_unsettled(node)
            source = self._config_map()
            configs = keys.foreign_configs(self.cluster.api.get(source.path))
            key = labels_of(node).get(CONFIG_LABEL) or keys.key_without_label(configs, source) or ""
            active = keys.active_settings(configs.get(key, ""))
            saved = plugin_state.capture(node, source.namespace, source.name, active)
            self.cluster.save_access(self.name, saved)
        return saved

    def _publish_configs(self, now: PluginConfig, active: Json) -> None:
        """Add all configs of the study to the ConfigMap at once, so that it changes only once."""
        source = self._config_map()
        sizes = self.cluster.options["tenants"]
        of_study = [PluginConfig("none"), *(PluginConfig("mps", n) for n in sizes.get("mps", []) if n > 1)]
        if "time-slicing" in sizes:
            of_study.append(PluginConfig("time-slicing", max(keys.MIN_REPLICAS, *sizes["time-slicing"])))
        texts = {config.key(active): config.text(active) for config in (now, *of_study)}
        digest, now_seconds = self.cluster.digest, time.time()
        patch = patch_with_retry(
            self.cluster.api,
            source.path,
            lambda current: keys.patch_to_add(current, digest, texts, source, now_seconds),
        )
        # A run on another node may have added the key a moment ago.
        is_late = now not in of_study and saved_state.is_another_node_measured(self.cluster.nodes(), self.cluster.name)
        if patch or is_late:
            readers.force_sync(self.cluster)

    def restore(self, state: AccessState) -> None:
        """Restore the label and the ConfigMap, and wait until the node shows its saved state."""
        saved = cast(PluginState, state)
        self._remove_placeholders()
        labels = plugin_state.label_patch(self.cluster.read_node(), saved)
        takes_only_key = labels is not None and saved["label"] is None and self._takes_only_key()
        is_mps = labels is not None and saved["shown"][SHARING_LABEL] == "mps"
        is_mps_new = is_mps and bool(self._mps_problems())
        if not self._mig.restore(saved, labels or {}) and labels is not None:
            self.cluster.set_labels(labels)
        if is_mps:
            # As in `ensure`, the daemon would keep our shares.
            self._delete_pod(self.cluster.installed.mps)
        if takes_only_key:
            # There is a fallback to the only key once ours are gone, and the pods look for it when they start.
            self._remove_configs(saved)
            readers.restart(self.cluster)

        def problems() -> list[str]:
            found = self._mps_problems() if is_mps else []
            if takes_only_key and saved["allocatable"]:
                found += plugin_state.unready_reasons(self.cluster.pods(), self.cluster.installed)
            return found + plugin_state.restore_problems(self.cluster.read_node(), saved)

        # Without a plugin, nothing reacts to the label any more.
        if labels is not None and self.cluster.installed.plugin is not None:
            # Its owner may have changed more than the label: then no restore ends well.
            command = f"kubectl annotate node {self.cluster.name} {saved_state.ANNOTATION}-"
            remedy = f"; where the node is to stay as it is now: {command}"
            failure = "the node did not get back to how it was found"
            self._await_state(problems, failure, is_mps, is_mps_new, remedy)
        if not takes_only_key:
            self._remove_configs(saved)

    def _takes_only_key(self) -> bool:
        """Whether nodes without the label have the only key of the ConfigMap, which ours hide."""
        source = self.cluster.installed.config_map
        found = self.cluster.api.find(source.path) if source else None
        return source is not None and found is not None and keys.hidden_key(found, source) is not None

    def _remove_configs(self, saved: PluginState) -> None:
        """Remove our keys, unless another node needs them, or the plugin was uninstalled with its ConfigMap."""
        api, namespace = self.cluster.api, saved["configs"]["namespace"]
        path = config_map_path(namespace, saved["configs"]["name"])
        if (found := api.find(path)) is None:
            return
        nodes = {node_digest(each["metadata"]["name"]) for each in self.cluster.nodes()}
        patch = patch_with_retry(api, path, lambda current: keys.patch_to_remove(current, self.cluster.digest, nodes))
        copied_at = keys.copied_at(found)
        if copied_at is not None and keys.NAMED_KEY in patch.get("data", {}):
            readers.restart_elsewhere(self.cluster, namespace, copied_at)
