"""What the asker of an advice can have, and what counts as a difference. The command imports this early."""

from typing import Literal, NamedTuple, get_args

Deployment = Literal["auto", "host", "device-plugin", "claims"]
DEPLOYMENTS: tuple[Deployment, ...] = get_args(Deployment)
MARGIN_PERCENT = 5.0


class Terms(NamedTuple):
    deploy: Deployment = "auto"
    """All that a host can do, what NVIDIA's device plugin can, or resource claims; `auto` is what was measured."""
    one_process: bool = False
    """Whether the tenants can become threads of one process."""
    margin_percent: float = MARGIN_PERCENT
    """Plans that are nearer to the best than this are ordered by effort; sharing that gains less brings nothing."""


USUAL = Terms()
