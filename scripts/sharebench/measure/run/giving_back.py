"""Giving a cluster's node back to others once no job of the run needs it, while tables, figures and report are made.

A host keeps its state until the run ends, since that keeps no one away.
"""

import sys
import threading

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.run import lifecycle
from sharebench.measure.run.ownership import Claim
from sharebench.measure.run.placement import open_nodes
from sharebench.study.study import Study


class GivingBack:
    """Restores and releases the nodes of one run in the background; `started` is called with the rule of each job."""

    def __init__(self, study: Study, claim: Claim) -> None:
        self._study, self._claim = study, claim
        needs_node = not lifecycle.NODE_RULES.isdisjoint(claim.record["jobs"])
        self._is_waiting = needs_node and study.node_kind == "kubernetes"
        self._is_back = False
        self._thread = threading.Thread(target=self._give_back, name="giving back", daemon=True)

    def started(self, rule: str) -> None:
        # The tables need every record, so that all other jobs on the node have ended.
        if self._is_waiting and rule == "aggregate":
            self._is_waiting = False
            self._thread.start()

    def is_back(self, may_wait: bool) -> bool:
        """Whether the nodes are as they were. The end of the run, which may wait for that, tries a failed one."""
        if may_wait and self._thread.is_alive():
            lifecycle.say_restoring(self._study)
        if may_wait and self._thread.ident is not None:
            self._thread.join()
        return self._is_back

    def _give_back(self) -> None:
        try:
            how = self._restore()
        except (NodeError, OSError) as error:
            how = f"the node could not be given back yet: {error}"
        if how is not None:
            print(f"all cells are measured, and {how}", file=sys.stderr, flush=True)

    def _restore(self) -> str | None:
        """How the nodes are now, which are released; None where the end of the run says it. Raises NodeError."""
        nodes = open_nodes(self._study, self._claim.results, self._claim.record.get("devices", ()))
        warnings: list[str] = []
        for node in nodes:
            node.restore()
            lost, unready = lifecycle.state_lines(node)
            if lost:
                return None
            warnings += filter(None, [unready])
        # All are, or the end of the run restores all again, for which it must hold them.
        self._is_back = True
        for node in nodes:
            lifecycle.release_node(node)
        return "; ".join(warnings) or "the node is back as it was"
