"""MIG partitioning under the device plugin: the instances of each strategy, made by mig-manager if allowed."""

from collections.abc import Mapping

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.access.device_plugin import mig_instances, mig_manager
from sharebench.measure.nodes.kubernetes.access.device_plugin.keys import PluginConfig
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_instances import MigInventory, Partitioning
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_layouts import (
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    LayoutMap,
)
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_manager import MigManager
from sharebench.measure.nodes.kubernetes.access.device_plugin.state import Expected, PluginState
from sharebench.measure.nodes.kubernetes.cluster import saved_state
from sharebench.measure.nodes.kubernetes.cluster.api import Json, pod_path
from sharebench.measure.nodes.kubernetes.cluster.cluster import Cluster
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import allocatable, labels_of, variables_of
from sharebench.model.strategy import Strategy


class MigPartitioner:
    """Partitions the GPU of one node for the access of the given name."""

    def __init__(self, cluster: Cluster, access: str) -> None:
        self._cluster = cluster
        self._access = access

    def _manager(self) -> MigManager:
        part = self._cluster.installed.mig_manager
        if part is None:
            raise NodeError("the MIG manager is gone: its DaemonSet is not installed any more")
        return MigManager(self._cluster, part)

    # Partitionings of strategies.

    def _inventory(self) -> MigInventory:
        node, installed = self._cluster.read_node(), self._cluster.installed
        saved = saved_state.load_access(node, self._access)
        before = saved["mig"] if saved else mig_manager.capture(node)
        variables = variables_of(installed.plugin.own_container) if installed.plugin else {}
        may_change = "mig" in self._cluster.options["may_change"]
        return MigInventory(
            labels=labels_of(node),
            layout_map=self._layout_map(node) if may_change and installed.mig_manager else None,
            fixed_strategy=variables.get(mig_instances.STRATEGY_VARIABLE) or None,
            existing=before["layout"],
            is_made_by_hand=bool(before["layout"]) and before["labels"][MIG_CONFIG_LABEL] is None,
        )

    def _layout_map(self, node: Json) -> LayoutMap:
        """The manager's map of layouts. Raises NodeError."""
        labels = labels_of(node)
        # While the plugin offers instances as GPUs, the label has an instance's memory.
        memory_mib = mig_instances.gpu_memory_mib(labels) or saved_state.memory_mib(node)
        return self._manager().layout_map(mig_instances.gpu_count(labels), memory_mib)

    def infeasible(self, strategy: Strategy, replicas: int) -> str | None:
        """Why the node cannot give `replicas` tenants of the strategy their part of the GPU; None if it can."""
        inventory = self._inventory()
        if strategy.mechanism[-1] == "mps" and inventory.fixed_strategy == "mixed":
            return f"the device plugin has no MPS while {mig_instances.STRATEGY_VARIABLE} of its DaemonSet is mixed"
        return inventory.infeasible(strategy, replicas, self._cluster.max_tenants(strategy))

    def partitioning(self, strategy: Strategy) -> Partitioning:
        """The GPU's partitioning under the strategy. Raises NodeError."""
        return self._inventory().partitioning(strategy, self._cluster.max_tenants(strategy))

    def expected(self, wanted: Partitioning, config: PluginConfig, key: str) -> Expected:
        """The state that the node must show with this partitioning and this config of the plugin."""
        manager_labels = {} if wanted.config is None else {MIG_CONFIG_LABEL: wanted.config, MIG_STATE_LABEL: "success"}
        labels = self._cluster.labels()
        if not wanted.layout:
            gpus = mig_instances.gpu_count(labels)
            return Expected(key, config.sharing, config.replicas, gpus, mig_labels=manager_labels)
        instance_labels = wanted.labels(mig_instances.whole_product(labels))
        return Expected(key, config.sharing, config.replicas, 1, wanted.resources, manager_labels | instance_labels)

    # Changes.

    def is_applied(self, wanted: Partitioning) -> bool:
        """Whether the node's labels show this partitioning, or it does not change the layout.

        The manager's labels are not sufficient, since it does not notice changes by others.
        """
        labels = self._cluster.labels()
        is_reported = (labels.get(MIG_CONFIG_LABEL), labels.get(MIG_STATE_LABEL)) == (wanted.config, "success")
        return wanted.config is None or (is_reported and mig_instances.shown_layout(labels) == wanted.layout)

    def refuse_unsettled(self, node: Json) -> None:
        """Raise NodeError if the layout is not settled, so that it could not be restored."""
        mig_manager.refuse_unsettled(node)
        labels = labels_of(node)
        if (config := labels.get(MIG_CONFIG_LABEL)) is None or self._cluster.installed.mig_manager is None:
            return
        # If the label is new, the state label may still describe the previous layout.
        rules = self._layout_map(node).entries.get(config, [])
        shown = [rule.devices != "all" or mig_instances.is_layout_shown(labels, rule.layout) for rule in rules]
        is_shown = not rules or any(shown)
        if not (is_shown and mig_instances.are_instances_allocatable(labels, allocatable(node))):
            raise NodeError(
                f"the node does not show the MIG layout of its label {MIG_CONFIG_LABEL}, {config}; wait until it does"
            )

    def refuse_foreign_layout(self, saved: PluginState) -> None:
        """Raise NodeError if someone else has set the layout since we did."""
        if mig_manager.is_set_by_others(self._cluster.read_node(), saved["mig"]):
            now = self._cluster.labels().get(MIG_CONFIG_LABEL)
            raise NodeError(f"someone set the node's label {MIG_CONFIG_LABEL} to {now}, it was {saved['mig']['set']}")

    def apply(self, wanted: Partitioning, saved: PluginState, other_labels: Mapping[str, str | None]) -> None:
        """Have the manager partition the GPU, and set other labels in the same patch.

        Raises NodeError, also if someone else has set another layout since we did.
        """
        assert wanted.config is not None
        self.refuse_foreign_layout(saved)
        earlier = {*saved["mig"].get("set_before", []), *filter(None, [saved["mig"]["set"]])}
        now: mig_manager.MigState = {**saved["mig"], "set": wanted.config, "set_before": sorted(earlier)}
        self._cluster.save_access(self._access, {**saved, "mig": now})
        before = self._pods_to_restart()
        self._manager().set_layout(wanted.config, other_labels)
        # From now on, one of the earlier entries is someone else's.
        self._cluster.save_access(self._access, {**saved, "mig": {**now, "set_before": []}})
        self._restart_remaining(before)

    def restore(self, saved: PluginState, other_labels: Mapping[str, str | None]) -> bool:
        """Restore the saved layout, and set other labels in the same patch; False if we never changed the layout.

        Raises NodeError.
        """
        if saved["mig"]["set"] is None:
            return False
        saved_labels, node, before = saved["mig"]["labels"], self._cluster.read_node(), self._pods_to_restart()
        if mig_manager.is_set_by_others(node, saved["mig"]):
            self._cluster.set_labels(other_labels)
        else:
            layout_map = self._layout_map(node)
            if (config := saved_labels[MIG_CONFIG_LABEL] or layout_map.entry_name({})) is None:
                raise NodeError(layout_map.no_entry_message({}))
            self._manager().set_layout(config, other_labels)
            now = self._cluster.labels()
            self._cluster.set_labels({name: value for name, value in saved_labels.items() if now.get(name) != value})
        self._restart_remaining(before)
        return True

    def _pods_to_restart(self) -> dict[str, str]:
        """UIDs, by path, of the pods that detect instances only when they start."""
        pods, installed = self._cluster.pods(), self._cluster.installed
        components = filter(None, (installed.plugin, installed.discovery))
        return {
            pod_path(pod): pod["metadata"]["uid"]
            for pod in filter(None, (component.pod_of(pods) for component in components))
            if not pod["metadata"].get("deletionTimestamp")
        }

    def _restart_remaining(self, before: Mapping[str, str]) -> None:
        """Restart the pods that the manager did not: those of a plugin installed without the operator."""
        for path, uid in self._pods_to_restart().items():
            if before.get(path) == uid:
                self._cluster.api.delete(path)
