"""In which order a stack is removed (spec 2.11), as data.

The Gateway goes first, while its controller runs: nobody else deletes the load balancer behind it. Charts are removed only when the
Service of the load balancer is gone.
"""

from enum import StrEnum
from typing import NamedTuple

from activities.render.stack import components, objects


class Removal(StrEnum):
    """What a step removes, or waits for."""

    ROUTES = "routes"
    """Nothing: it waits until no route and no pool of ours is left on the cluster."""
    OBJECTS = "objects"
    """The objects of a group; behind a Gateway also the Services that its controller made."""
    RELEASE = "release"
    """The release of a component, and its pods."""
    BALANCERS = "balancers"
    """Nothing: it looks for LoadBalancer Services that others have."""
    DEFINITIONS = "definitions"
    """The definitions in the `crds/` folders of all charts, which Helm leaves."""


class RemovalStep(NamedTuple):
    """One step; `number` as the teardown shows it, `target` the key of a component or of a group of objects."""

    number: int
    code: str
    action: Removal
    target: str
    title: str


_ROWS: tuple[tuple[str, Removal, str, str], ...] = (
    ("U1", Removal.ROUTES, "", "no route and no InferencePool is left"),
    ("U2", Removal.OBJECTS, objects.GATEWAY, "delete the Gateway, and wait for its load balancer to go"),
    ("U3", Removal.OBJECTS, objects.CLASS, "delete the GatewayClass"),
    ("U4", Removal.OBJECTS, objects.PROXY, "delete the EnvoyProxy and the ClientTrafficPolicy"),
    *(
        ("U5", Removal.RELEASE, component.key, f"uninstall {component.key}")
        for component in (components.AI_GATEWAY, components.AI_GATEWAY_CRDS, components.ENVOY_GATEWAY)
    ),
    ("U6", Removal.BALANCERS, "", "look for load balancers of others"),
    *(
        ("U7", Removal.RELEASE, component.key, f"uninstall {component.key}")
        for component in (
            components.DRA_DRIVER,
            components.NODE_FEATURE_DISCOVERY,
            components.PROMETHEUS,
            components.LEADER_WORKER_SET,
            components.CERT_MANAGER,
        )
    ),
    ("U8", Removal.OBJECTS, objects.CRDS, "delete the definitions of the inference extension"),
    ("U8", Removal.OBJECTS, objects.QUOTA_GROUP, "delete the quota"),
    ("U8", Removal.OBJECTS, objects.NAMESPACES, "delete the namespaces"),
)
STEPS = tuple(RemovalStep(number, *row) for number, row in enumerate(_ROWS, 1))
# Last, so that no step has another number with it.
PURGE = RemovalStep(len(STEPS) + 1, "U8", Removal.DEFINITIONS, "", "delete the definitions that charts left and nobody uses")


def steps_of(*, purge: bool) -> tuple[RemovalStep, ...]:
    """Give the steps of a removal, with or without that of the definitions that charts leave."""
    return (*STEPS, PURGE) if purge else STEPS
