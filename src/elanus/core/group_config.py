"""The declared configuration of a resource group: how many query nodes it gets, from where, and which.

Rules and texts are those of version 2.6 of the reference. `elanus.core.group_nodes` moves nodes accordingly.
Pure.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, field, replace

from elanus.core.errors import InvalidParameter, ResourceGroupIllegalConfig


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The declared size of a group, in nodes.

    ``requests``: with fewer nodes it takes some of groups that have more than they request. ``limits``: what
    it has above that goes to other groups. ``transfer_from`` and ``transfer_to``: the groups that are
    preferred then. ``node_labels``: only nodes with all these labels count, and are accepted.
    """

    requests: int = 0
    limits: int = 0
    transfer_from: tuple[str, ...] = ()
    transfer_to: tuple[str, ...] = ()
    node_labels: Mapping[str, str] = field(default_factory=dict)

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels may be in the group."""
        return all(labels.get(key) == value for key, value in self.node_labels.items())

    def resized(self, by: int) -> GroupConfig:
        """Return the configuration after a transfer of ``by`` nodes into the group (negative: out of it)."""
        requests = max(0, self.requests + by)
        limits = max(0, self.limits + by) if by < 0 else max(self.limits, requests)
        return replace(self, requests=requests, limits=limits)


def check_config(name: str, config: GroupConfig, others: Container[str]) -> GroupConfig:
    """Return the configuration. ``others``: the names of the groups that exist.

    Raises `ResourceGroupIllegalConfig`.
    """
    if config.requests < 0 or config.limits < 0:
        raise illegal_config(name, config, "node num in `requests` or `limits` should not less than 0")
    if config.limits < config.requests:
        raise illegal_config(name, config, "limits node num should not less than requests node num")
    for side, named in (("TransferFrom", config.transfer_from), ("TransferTo", config.transfer_to)):
        for other in named:
            if other == name:
                raise illegal_config(name, config, f"resource group in `{side}` {other} should not be itself")
            if other not in others:
                raise illegal_config(name, config, f"resource group in `{side}` {other} not exist")
    return config


def illegal_config(name: str, config: GroupConfig | None, why: str) -> ResourceGroupIllegalConfig:
    shown = asdict(config) if config is not None else None
    return ResourceGroupIllegalConfig(f"{why}: resource group illegal config[rg={name}][config={shown}]")


def check_not_named(name: str, configs: Mapping[str, GroupConfig]) -> None:
    """Raises `InvalidParameter` if the configuration of another group names the group ``name``."""
    for other, config in configs.items():
        for side, named in (("TransferFrom", config.transfer_from), ("TransferTo", config.transfer_to)):
            if name in named:
                raise InvalidParameter(
                    f"resource group {name} is used by {other}'s `{side}`, remove that configuration first: "
                    f"invalid parameter[expected=not `{side}` of resource group][actual={name}]"
                )
