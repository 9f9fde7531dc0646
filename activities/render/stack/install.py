"""In which order a stack is installed and upgraded (spec 2.5, 2.6, 2.10), as data.

A step may begin when those that it needs are complete. Nothing waits inside Helm, for two releases need each other to become ready:
readiness is a step of its own.
"""

from enum import StrEnum
from typing import NamedTuple

from activities.render.stack import components, objects
from activities.render.stack.components import PAIR


class Stage(NamedTuple):
    """A stage of the plan. After `deadline_seconds` its condition says that it takes longer than usual; nothing is aborted."""

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
    """What a step does with its targets."""

    OBJECTS = "objects"
    """Apply a group of objects (`objects.GROUPS`); definitions are awaited until they are established."""
    CRDS = "crds"
    """Apply what is in the `crds/` folders of the charts of some components, and wait until it is established."""
    RELEASE = "release"
    """Install or upgrade the release of a component, without waiting for its workloads."""
    READY = "ready"
    """Wait until nothing of some components and groups lags."""


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
PAIR_READY, CLASS_READY, ALL_READY = "gateway-pair-ready", "gateway-class-ready", "all-ready"
# The last step: what it waits for is the whole stack, at its first installation the address too.
EVERYTHING = (*components.BY_KEY, objects.CRDS, objects.CLASS, objects.GATEWAY)


def _objects(group: str, stage: Stage, *needs: str) -> Step:
    return Step(group, stage, Action.OBJECTS, (group,), needs)


def _release(component: components.Component, stage: Stage, *needs: str) -> Step:
    return Step(component.key, stage, Action.RELEASE, (component.key,), needs)


INSTALL: tuple[Step, ...] = (
    # First of all: it carries the mark of the owner, and a cluster that another one has is left as it is.
    _objects(objects.NAMESPACES, S1),
    _objects(objects.QUOTA_GROUP, S1, objects.NAMESPACES),
    _objects(objects.CRDS, S1, objects.NAMESPACES),
    Step(GATEWAY_CRDS, S2A, Action.CRDS, (components.ENVOY_GATEWAY.key,), (objects.NAMESPACES,)),
    _release(components.AI_GATEWAY_CRDS, S2A, GATEWAY_CRDS),
    # It never gets ready before the AI gateway is there, which gives it the right to read InferencePools.
    _release(components.ENVOY_GATEWAY, S2B, GATEWAY_CRDS, objects.CRDS),
    # It looks once, at its start, whether there are InferencePools.
    _release(components.AI_GATEWAY, S2B, components.ENVOY_GATEWAY.key, components.AI_GATEWAY_CRDS.key, objects.CRDS),
    Step(PAIR_READY, S2B, Action.READY, PAIR, (components.AI_GATEWAY.key,)),
    # A stack that was here before may have left older definitions, which Helm never touches.
    Step(OTHER_CRDS, S2C, Action.CRDS, _WITH_CRDS, (objects.NAMESPACES,)),
    _release(components.CERT_MANAGER, S2C, OTHER_CRDS),
    _release(components.LEADER_WORKER_SET, S2C, OTHER_CRDS),
    _release(components.PROMETHEUS, S2C, OTHER_CRDS),
    _release(components.NODE_FEATURE_DISCOVERY, S2C, OTHER_CRDS),
    _release(components.DRA_DRIVER, S2C, components.NODE_FEATURE_DISCOVERY.key, objects.QUOTA_GROUP),
    # While the AI gateway is down its webhook lets no proxy pod be created, so the Gateway comes last.
    _objects(objects.PROXY, S3, PAIR_READY),
    _objects(objects.CLASS, S3, objects.PROXY),
    Step(CLASS_READY, S3, Action.READY, (objects.CLASS,), (objects.CLASS,)),
    _objects(objects.GATEWAY, S3, CLASS_READY),
    Step(ALL_READY, S4, Action.READY, EVERYTHING, (objects.GATEWAY, components.DRA_DRIVER.key, *_WITH_CRDS[:-1])),
)


def _upgrade() -> tuple[Step, ...]:
    """Give the steps one after the other: definitions first, the pair together, and nothing goes on before the last one is ready."""
    unchained: list[Step] = [
        *(_objects(name, S1) for name in (objects.NAMESPACES, objects.QUOTA_GROUP, objects.CRDS)),
        Step(GATEWAY_CRDS, S2A, Action.CRDS, (components.ENVOY_GATEWAY.key,)),
        Step(OTHER_CRDS, S2A, Action.CRDS, _WITH_CRDS),
        _release(components.AI_GATEWAY_CRDS, S2A),
        _release(components.ENVOY_GATEWAY, S2B),
        _release(components.AI_GATEWAY, S2B),
        Step(PAIR_READY, S2B, Action.READY, PAIR),
    ]
    for component in components.COMPONENTS[3:]:
        unchained.append(_release(component, S2C))
        unchained.append(Step(f"{component.key}-ready", S2C, Action.READY, (component.key,)))
    unchained += [_objects(objects.PROXY, S3), _objects(objects.CLASS, S3), Step(CLASS_READY, S3, Action.READY, (objects.CLASS,))]
    unchained += [_objects(objects.GATEWAY, S3), Step(ALL_READY, S4, Action.READY, EVERYTHING)]
    return tuple(step._replace(needs=(before.key,) if before else ()) for before, step in zip([None, *unchained], unchained, strict=False))


UPGRADE = _upgrade()
