"""The order in which a stack is removed, as data.

The Gateway is deleted first, while its controller runs: only the controller deletes its
load balancer. Charts are removed only when the Service of the load balancer is gone.
"""

from enum import StrEnum
from typing import NamedTuple

from activities.render.stack import components, objects


class Removal(StrEnum):
    """The operation of a step."""

    ROUTES = "routes"
    """Wait until none of Modelplane's routes and pools is left on the cluster."""
    OBJECTS = "objects"
    """Delete the objects of a group, and the Services that a controller made for a
    Gateway.
    """
    RELEASE = "release"
    """Uninstall the release of a component, and wait for its pods to end."""
    BALANCERS = "balancers"
    """Look for LoadBalancer Services of others."""
    DEFINITIONS = "definitions"
    """Delete the definitions in the `crds/` folders of all charts, which Helm leaves.
    """


class RemovalStep(NamedTuple):
    """One step.

    `number` is shown by the teardown. `target` is the key of a component or of a group
    of objects.
    """

    number: int
    code: str
    action: Removal
    target: str
    title: str


_ROWS: tuple[tuple[str, Removal, str, str], ...] = (
    ("U1", Removal.ROUTES, "", "no route and no InferencePool is left"),
    (
        "U2",
        Removal.OBJECTS,
        objects.GATEWAY,
        "delete the Gateway, and wait for its load balancer to go",
    ),
    ("U3", Removal.OBJECTS, objects.CLASS, "delete the GatewayClass"),
    (
        "U4",
        Removal.OBJECTS,
        objects.PROXY,
        "delete the EnvoyProxy and the traffic policies",
    ),
    *(
        ("U5", Removal.RELEASE, component.key, f"uninstall {component.key}")
        for component in (
            components.AI_GATEWAY,
            components.AI_GATEWAY_CRDS,
            components.ENVOY_GATEWAY,
        )
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
    (
        "U8",
        Removal.OBJECTS,
        objects.CRDS,
        "delete the definitions of the inference extension",
    ),
    ("U8", Removal.OBJECTS, objects.QUOTA_GROUP, "delete the quota"),
    ("U8", Removal.OBJECTS, objects.NAMESPACES, "delete the namespaces"),
)
STEPS = tuple(RemovalStep(number, *row) for number, row in enumerate(_ROWS, 1))
# This is the last step, so that its absence does not change the number of another step.
PURGE = RemovalStep(
    len(STEPS) + 1,
    "U8",
    Removal.DEFINITIONS,
    "",
    "delete the definitions that charts left and nobody uses",
)


def steps_of(*, purge: bool) -> tuple[RemovalStep, ...]:
    """Return the steps of a removal, with or without the purge of definitions."""
    return (*STEPS, PURGE) if purge else STEPS
