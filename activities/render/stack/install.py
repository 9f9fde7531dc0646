"""The order in which a stack is installed and upgraded, as data.

A step may start when the steps that it needs are complete. No step waits inside Helm,
because two releases need each other to become ready: readiness is a separate step.
"""

from enum import StrEnum
from typing import NamedTuple

from activities.render.stack import components, objects
from activities.render.stack.components import PAIR


class Stage(NamedTuple):
    """A stage of the plan.

    After `deadline_seconds` its condition reports that it takes longer than usual.
    Nothing is aborted.
    """

    number: str
    title: str
    deadline_seconds: int


S0 = Stage("S0", "preflight", 120)
S1 = Stage("S1", "base", 120)
S2A = Stage("S2a", "gateway CRDs", 180)
S2B = Stage("S2b", "gateway pair", 600)
S2C = Stage("S2c", "other components", 600)
S3 = Stage("S3", "gateway", 180)
S4 = Stage("S4", "address", 900)
STAGES = (S0, S1, S2A, S2B, S2C, S3, S4)
BY_NUMBER = {stage.number: stage for stage in STAGES}


class Action(StrEnum):
    """The operation of a step on its targets."""

    OBJECTS = "objects"
    """Apply a group of objects (`objects.GROUPS`), and wait until definitions are
    established.
    """
    CRDS = "crds"
    """Apply the `crds/` folders of some charts, and wait until they are established."""
    RELEASE = "release"
    """Install or upgrade a component's release, without waiting for its workloads."""
    READY = "ready"
    """Wait until some components and groups are ready."""


class Step(NamedTuple):
    """One step. `targets` are keys of components or of groups of objects."""

    key: str
    stage: Stage
    action: Action
    targets: tuple[str, ...]
    needs: tuple[str, ...] = ()


_WITH_CRDS = (
    components.CERT_MANAGER.key,
    components.LEADER_WORKER_SET.key,
    components.PROMETHEUS.key,
    components.NODE_FEATURE_DISCOVERY.key,
    components.DRA_DRIVER.key,
)
GATEWAY_CRDS, OTHER_CRDS = "gateway-crds", "other-crds"
PAIR_READY, CLASS_READY, ALL_READY = (
    "gateway-pair-ready",
    "gateway-class-ready",
    "all-ready",
)
# The last step waits for the whole stack, and at the first installation for the
# address.
EVERYTHING = (*components.BY_KEY, objects.CRDS, objects.CLASS, objects.GATEWAY)


def _objects(group: str, stage: Stage, *needs: str) -> Step:
    return Step(group, stage, Action.OBJECTS, (group,), needs)


def _release(component: components.Component, stage: Stage, *needs: str) -> Step:
    return Step(component.key, stage, Action.RELEASE, (component.key,), needs)


INSTALL: tuple[Step, ...] = (
    # The first step sets the owner's mark. A cluster with another owner's mark is not
    # changed.
    _objects(objects.NAMESPACES, S1),
    _objects(objects.QUOTA_GROUP, S1, objects.NAMESPACES),
    _objects(objects.CRDS, S1, objects.NAMESPACES),
    Step(
        GATEWAY_CRDS,
        S2A,
        Action.CRDS,
        (components.ENVOY_GATEWAY.key,),
        (objects.NAMESPACES,),
    ),
    _release(components.AI_GATEWAY_CRDS, S2A, GATEWAY_CRDS),
    # It becomes ready only after the AI gateway has granted it access to
    # InferencePools.
    _release(components.ENVOY_GATEWAY, S2B, GATEWAY_CRDS, objects.CRDS),
    # It checks only once, at its start, whether InferencePools exist.
    _release(
        components.AI_GATEWAY,
        S2B,
        components.ENVOY_GATEWAY.key,
        components.AI_GATEWAY_CRDS.key,
        objects.CRDS,
    ),
    Step(PAIR_READY, S2B, Action.READY, PAIR, (components.AI_GATEWAY.key,)),
    # An earlier stack may have left older definitions, which Helm never updates.
    Step(OTHER_CRDS, S2C, Action.CRDS, _WITH_CRDS, (objects.NAMESPACES,)),
    _release(components.CERT_MANAGER, S2C, OTHER_CRDS),
    _release(components.LEADER_WORKER_SET, S2C, OTHER_CRDS),
    _release(components.PROMETHEUS, S2C, OTHER_CRDS),
    _release(components.NODE_FEATURE_DISCOVERY, S2C, OTHER_CRDS),
    _release(
        components.DRA_DRIVER,
        S2C,
        components.NODE_FEATURE_DISCOVERY.key,
        objects.QUOTA_GROUP,
    ),
    # While the AI gateway is down its webhook blocks the creation of proxy pods, so the
    # Gateway comes last.
    _objects(objects.PROXY, S3, PAIR_READY),
    _objects(objects.CLASS, S3, objects.PROXY),
    Step(CLASS_READY, S3, Action.READY, (objects.CLASS,), (objects.CLASS,)),
    _objects(objects.GATEWAY, S3, CLASS_READY),
    Step(
        ALL_READY,
        S4,
        Action.READY,
        EVERYTHING,
        (objects.GATEWAY, components.DRA_DRIVER.key, *_WITH_CRDS[:-1]),
    ),
)


def _upgrade() -> tuple[Step, ...]:
    """Return the upgrade steps as a chain.

    Definitions come first, the gateway pair is upgraded together, and each step waits
    for the previous one.
    """
    unchained: list[Step] = [
        *(
            _objects(name, S1)
            for name in (objects.NAMESPACES, objects.QUOTA_GROUP, objects.CRDS)
        ),
        Step(GATEWAY_CRDS, S2A, Action.CRDS, (components.ENVOY_GATEWAY.key,)),
        Step(OTHER_CRDS, S2A, Action.CRDS, _WITH_CRDS),
        _release(components.AI_GATEWAY_CRDS, S2A),
        _release(components.ENVOY_GATEWAY, S2B),
        _release(components.AI_GATEWAY, S2B),
        Step(PAIR_READY, S2B, Action.READY, PAIR),
    ]
    for component in components.COMPONENTS[3:]:
        unchained.append(_release(component, S2C))
        unchained.append(
            Step(f"{component.key}-ready", S2C, Action.READY, (component.key,))
        )
    unchained += [
        _objects(objects.PROXY, S3),
        _objects(objects.CLASS, S3),
        Step(CLASS_READY, S3, Action.READY, (objects.CLASS,)),
    ]
    unchained += [
        _objects(objects.GATEWAY, S3),
        Step(ALL_READY, S4, Action.READY, EVERYTHING),
    ]
    return tuple(
        step._replace(needs=(before.key,) if before else ())
        for before, step in zip([None, *unchained], unchained, strict=False)
    )


UPGRADE = _upgrade()
