"""The order in which the objects of a replica or a cache are deleted, as data.

Each step waits until its objects are gone, not only until their deletion has started:
an existing route would send requests to terminating pods, and nodes are free only when
their last pod is gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from activities.render.objects import components, inventory_keys
from api_types.messages.cluster_work import AppliedObject
from api_types.pins import apiversions


@dataclass(frozen=True)
class TeardownStep:
    """One step, which starts when no object of the previous step is left.

    `component` is the component label of the objects to delete, which finds them
    without an inventory. `kinds` are (apiVersion, kind) pairs of Modelplane's objects,
    in the order of deletion; an apiVersion ending in `/` means the version that the
    cluster serves. `inventory_prefixes` are the inventory keys of the step.
    `wait_kinds` are objects that controllers created from these objects and that must
    be gone too. The workflow runs the steps that are not on the cluster.
    """

    number: int
    title: str
    component: str = ""
    kinds: tuple[tuple[str, str], ...] = ()
    inventory_prefixes: tuple[str, ...] = ()
    wait_kinds: tuple[tuple[str, str], ...] = ()
    on_cluster: bool = True


WITHDRAW, DRAIN, ENGINES, COPIES, SWEEP, RELEASE = 1, 2, 7, 10, 11, 12
CACHE_JOB, CACHE_CREDENTIAL, CACHE_VOLUME = 1, 2, 3
_CLAIM_TEMPLATE = (f"{apiversions.DRA_GROUP}/", "ResourceClaimTemplate")
_CLAIM = (f"{apiversions.DRA_GROUP}/", "ResourceClaim")

STEPS = (
    TeardownStep(WITHDRAW, "withdraw the endpoint", on_cluster=False),
    TeardownStep(DRAIN, "drain", on_cluster=False),
    TeardownStep(
        3,
        "delete the route",
        components.ROUTING,
        ((apiversions.GATEWAY, "HTTPRoute"),),
        (inventory_keys.MODEL_ROUTE, inventory_keys.HOST_ROUTE),
    ),
    TeardownStep(
        4,
        "delete the pool or Service",
        components.ROUTING,
        (
            *(
                (version, "InferenceModelRewrite")
                for version in apiversions.MODEL_REWRITES
            ),
            (apiversions.INFERENCE, "InferencePool"),
            (apiversions.CORE, "Service"),
        ),
        (
            inventory_keys.MODEL_REWRITE,
            inventory_keys.INFERENCE_POOL,
            inventory_keys.MODEL_SERVICE,
        ),
    ),
    TeardownStep(
        5,
        "delete the endpoint picker",
        components.PICKER,
        (
            (apiversions.APPS, "Deployment"),
            (apiversions.POLICY, "PodDisruptionBudget"),
            (apiversions.CORE, "Service"),
            (apiversions.DESTINATION_RULE, "DestinationRule"),
            (apiversions.CORE, "ConfigMap"),
            (apiversions.RBAC, "RoleBinding"),
            (apiversions.RBAC, "Role"),
            (apiversions.RBAC, "ClusterRoleBinding"),
            (apiversions.RBAC, "ClusterRole"),
            (apiversions.CORE, "Secret"),
            (apiversions.CORE, "ServiceAccount"),
        ),
        (inventory_keys.PICKER,),
    ),
    TeardownStep(
        6,
        "delete the monitors",
        components.MONITORING,
        ((apiversions.POD_MONITOR, "PodMonitor"),),
        (inventory_keys.MONITOR_PREFIX,),
    ),
    TeardownStep(
        ENGINES,
        "delete the engines",
        components.ENGINE,
        (
            (apiversions.APPS, "Deployment"),
            (apiversions.LEADER_WORKER_SET, "LeaderWorkerSet"),
            (apiversions.POLICY, "PodDisruptionBudget"),
        ),
        (inventory_keys.ENGINE_PREFIX, inventory_keys.BUDGET_PREFIX),
        (
            (apiversions.APPS, "ReplicaSet"),
            (apiversions.APPS, "StatefulSet"),
            (apiversions.CORE, "Pod"),
            _CLAIM,
        ),
    ),
    TeardownStep(
        8,
        "delete the pod groups",
        components.POD_GROUP,
        ((apiversions.KAI_POD_GROUP, "PodGroup"),),
        (inventory_keys.POD_GROUP_PREFIX,),
    ),
    TeardownStep(
        9,
        "delete the claim templates and the ComputeDomains",
        components.DEVICE_CLAIM,
        (_CLAIM_TEMPLATE, (apiversions.COMPUTE_DOMAIN, "ComputeDomain")),
        (inventory_keys.CLAIM_TEMPLATE_PREFIX, inventory_keys.COMPUTE_DOMAIN_PREFIX),
        (_CLAIM,),
    ),
    TeardownStep(
        COPIES,
        "delete unused copies of Secrets",
        components.SECRET,
        ((apiversions.CORE, "Secret"), (apiversions.CORE, "ConfigMap")),
        inventory_keys.COPY_PREFIXES,
    ),
    TeardownStep(SWEEP, "sweep what is left"),
    TeardownStep(RELEASE, "release the capacity", on_cluster=False),
)

# The steps for a cache on one cluster, after no replica mounts it any more. The Job is
# deleted first, because a volume that a pod still fills would never be deleted.
CACHE_STEPS = (
    TeardownStep(
        CACHE_JOB,
        "delete the hydration Job",
        components.CACHE,
        ((apiversions.BATCH, "Job"),),
        (inventory_keys.CACHE_JOB,),
        ((apiversions.CORE, "Pod"),),
    ),
    TeardownStep(
        CACHE_CREDENTIAL,
        "delete the credential",
        components.SECRET,
        ((apiversions.CORE, "Secret"),),
        (inventory_keys.CACHE_CREDENTIAL,),
    ),
    TeardownStep(
        CACHE_VOLUME,
        "delete the volume",
        components.CACHE,
        ((apiversions.CORE, "PersistentVolumeClaim"),),
        (inventory_keys.CACHE_VOLUME,),
    ),
)

# Every kind of a replica that the sweep lists by label.
SWEPT_KINDS = tuple(dict.fromkeys(kind for step in STEPS for kind in step.kinds))


def step_of_number(number: int) -> TeardownStep:
    """Return a step of a replica's teardown by its number."""
    return STEPS[number - 1]


def step_of(inventory_key: str) -> TeardownStep:
    """Return the step that deletes an object of the inventory.

    The sweep deletes objects that no other step names.
    """
    for step in STEPS:
        if inventory_key.startswith(step.inventory_prefixes):
            return step
    return step_of_number(SWEEP)


def deletions(
    step: TeardownStep, inventory: Sequence[AppliedObject]
) -> list[AppliedObject]:
    """Return the objects that a step deletes, in order.

    They are ordered by kind, and within a kind in reverse of the order of apply.
    """
    rank = {kind: position for position, (_, kind) in enumerate(step.kinds)}
    of_step = [entry for entry in reversed(inventory) if step_of(entry.key) is step]
    return sorted(of_step, key=lambda entry: rank.get(entry.kind, len(rank)))
