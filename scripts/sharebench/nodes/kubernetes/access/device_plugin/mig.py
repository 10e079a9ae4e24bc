"""MIG partitioning under the device plugin: which instances a strategy gets, made by mig-manager where allowed."""

from collections.abc import Mapping

from sharebench.core.strategies import Strategy
from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.access.device_plugin import mig_instances, mig_manager
from sharebench.nodes.kubernetes.access.device_plugin.keys import PluginConfig
from sharebench.nodes.kubernetes.access.device_plugin.mig_instances import MigInventory, Partitioning
from sharebench.nodes.kubernetes.access.device_plugin.mig_layouts import MIG_CONFIG_LABEL, MIG_STATE_LABEL, LayoutMap
from sharebench.nodes.kubernetes.access.device_plugin.mig_manager import MigManager
from sharebench.nodes.kubernetes.access.device_plugin.state import Expected, PluginState
from sharebench.nodes.kubernetes.cluster import saved_state
from sharebench.nodes.kubernetes.cluster.api import Json, pod_path
from sharebench.nodes.kubernetes.cluster.cluster import Cluster
from sharebench.nodes.kubernetes.cluster.nvidia_stack import allocatable, labels_of, variables_of


class MigPartitioner:
    """Partitions the GPU of one node, for the access of that name."""

    def __init__(self, cluster: Cluster, access: str) -> None:
        self._cluster = cluster
        self._access = access

    def _manager(self) -> MigManager:
        part = self._cluster.installed.mig_manager
        if part is None:
            raise NodeError("the MIG manager is gone: its DaemonSet is not installed any more")
        return MigManager(self._cluster, part)

    # What a strategy needs.

    def _inventory(self) -> MigInventory:
        node, installed = self._cluster.read(), self._cluster.installed
        saved = saved_state.load_access(node, self._access)
        before = saved["mig"] if saved else mig_manager.capture(node)
        variables = variables_of(installed.plugin.own_container) if installed.plugin else {}
        may_change = "mig" in self._cluster.options["may_change"]
        return MigInventory(
            labels=labels_of(node),
            known=self._known(node) if may_change and installed.mig_manager else None,
            fixed=variables.get(mig_instances.STRATEGY_VARIABLE) or None,
            existing=before["layout"],
            is_by_hand=bool(before["layout"]) and before["labels"][MIG_CONFIG_LABEL] is None,
        )

    def _known(self, node: Json) -> LayoutMap:
        """The manager's map. Raises NodeError."""
        labels = labels_of(node)
        # While the plugin offers instances as GPUs, the label has the memory of an instance.
        memory_mib = mig_instances.memory_mib(labels) or saved_state.memory_mib(node)
        return self._manager().known(mig_instances.gpus(labels), memory_mib)

    def infeasible(self, strategy: Strategy, replicas: int) -> str | None:
        """Why the node cannot give `replicas` tenants of the strategy their part of the GPU; None if it can."""
        inventory = self._inventory()
        if strategy.mechanisms[-1] == "mps" and inventory.fixed == "mixed":
            return f"the device plugin has no MPS while {mig_instances.STRATEGY_VARIABLE} of its DaemonSet is mixed"
        return inventory.infeasible(strategy, replicas, self._cluster.most_tenants(strategy))

    def partitioning(self, strategy: Strategy) -> Partitioning:
        """The GPU's partitioning under the strategy. Raises NodeError."""
        return self._inventory().partitioning(strategy, self._cluster.most_tenants(strategy))

    def expected(self, wanted: Partitioning, config: PluginConfig, key: str) -> Expected:
        """What the node must show when it is partitioned so, under that config of the plugin."""
        of_manager = {} if wanted.config is None else {MIG_CONFIG_LABEL: wanted.config, MIG_STATE_LABEL: "success"}
        labels = self._cluster.labels()
        if not wanted.layout:
            return Expected(key, config.sharing, config.replicas, mig_instances.gpus(labels), mig_labels=of_manager)
        of_instances = wanted.labels(mig_instances.whole_product(labels))
        return Expected(key, config.sharing, config.replicas, 1, wanted.resources, of_manager | of_instances)

    # Changes.

    def is_set(self, wanted: Partitioning) -> bool:
        """Whether the node's labels show this partitioning, or nothing is to be changed.

        The manager's labels alone would not do: it does not notice what others do with the GPU.
        """
        labels = self._cluster.labels()
        said = (labels.get(MIG_CONFIG_LABEL), labels.get(MIG_STATE_LABEL)) == (wanted.config, "success")
        return wanted.config is None or (said and mig_instances.shown(labels) == wanted.layout)

    def refuse_unsettled(self, node: Json) -> None:
        """Raise NodeError where the layout is not settled, so that it could not be restored."""
        mig_manager.refuse_unsettled(node)
        labels = labels_of(node)
        if (config := labels.get(MIG_CONFIG_LABEL)) is None or self._cluster.installed.mig_manager is None:
            return
        # The label may be so new that the state is that of the layout before.
        parts = self._known(node).entries.get(config, [])
        is_shown = not parts or any(part.devices != "all" or mig_instances.shows(labels, part.layout) for part in parts)
        if not (is_shown and mig_instances.offers(labels, allocatable(node))):
            raise NodeError(
                f"the node does not show the MIG layout of its label {MIG_CONFIG_LABEL}, {config}; wait until it does"
            )

    def refuse_another(self, saved: PluginState) -> None:
        """Raise NodeError when somebody else has set the layout since we did."""
        if mig_manager.is_theirs(self._cluster.read(), saved["mig"]):
            now = self._cluster.labels().get(MIG_CONFIG_LABEL)
            raise NodeError(f"somebody set the node's label {MIG_CONFIG_LABEL} to {now}, it was {saved['mig']['set']}")

    def set(self, wanted: Partitioning, saved: PluginState, besides: Mapping[str, str | None]) -> None:
        """Have the manager partition the GPU, with other labels set at the same moment.

        Raises NodeError, too, when somebody else has set another layout since we did.
        """
        assert wanted.config is not None
        self.refuse_another(saved)
        self._cluster.save_access(self._access, {**saved, "mig": {**saved["mig"], "set": wanted.config}})
        before = self._clients()
        self._manager().change(wanted.config, besides)
        self._restart_unchanged(before)

    def restore(self, saved: PluginState, besides: Mapping[str, str | None]) -> bool:
        """Restore the saved layout, with other labels set at the same moment; False if nothing was changed.

        Raises NodeError.
        """
        if saved["mig"]["set"] is None:
            return False
        then, node, before = saved["mig"]["labels"], self._cluster.read(), self._clients()
        if mig_manager.is_theirs(node, saved["mig"]):
            self._cluster.set_labels(besides)
        else:
            known = self._known(node)
            if (config := then[MIG_CONFIG_LABEL] or known.named({})) is None:
                raise NodeError(known.lacks({}))
            self._manager().change(config, besides)
            now = self._cluster.labels()
            self._cluster.set_labels({name: value for name, value in then.items() if now.get(name) != value})
        self._restart_unchanged(before)
        return True

    def _clients(self) -> dict[str, str]:
        """Paths of the pods that see instances only when they start, with their uids."""
        pods, installed = self._cluster.pods(), self._cluster.installed
        found = [part.pod_of(pods) for part in (installed.plugin, installed.discovery) if part is not None]
        return {
            pod_path(pod): pod["metadata"]["uid"]
            for pod in found
            if pod is not None and not pod["metadata"].get("deletionTimestamp")
        }

    def _restart_unchanged(self, before: Mapping[str, str]) -> None:
        """Restart the pods that the manager did not stop: those of a plugin installed without the operator."""
        for path, uid in self._clients().items():
            if before.get(path) == uid:
                self._cluster.api.delete(path)
