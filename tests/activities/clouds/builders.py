"""Builders of clusters at clouds with their classes, and of cloud facts."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from activities.clouds.desired.graph import CloudCall, DesiredObject, Fact, arguments
from activities.clouds.desired.plan import Desired
from activities.clouds.eks.wanted.inputs import EksFacts
from activities.clouds.eks.wanted.objects import eks_objects
from activities.clouds.gke.wanted.inputs import GkeFacts
from activities.clouds.gke.wanted.objects import gke_objects
from api_types.resources.inference_class import InferenceClass
from api_types.resources.inference_cluster import InferenceCluster
from api_types.sections.clouds import EksSettings, GkeSettings
from api_types.validation.manifests import load

API = "modelplane.ai/v1alpha1"
INSTALLATION = "0c7e1d52-6f0a-4b7e-9a43-3f0a6a1f2f11"
UID = "5d3f7a2e-3c41-4c8e-8a8e-1f2b3c4d5e6f"
PROJECT = "acme-ml"
ROLE = "arn:aws:iam::123456789012:role/provisioner"
DEVICES = [
    {"name": "gpu", "driver": "gpu.nvidia.com", "deviceClassName": "gpu.nvidia.com"}
]
TOKEN = "1b671a64-40d5-491e-99b0-da01ff1f3341"  # noqa: S105 - recognizes a repeated call
L4 = {
    "provider": "GKE",
    "gke": {
        "machineType": "g2-standard-8",
        "diskSizeGb": 200,
        "accelerator": {"type": "nvidia-l4", "count": 1},
    },
}
G6 = {
    "provider": "EKS",
    "eks": {
        "instanceType": "g6.2xlarge",
        "accelerator": {"type": "nvidia-l4", "count": 1},
    },
}
P5EN = {
    "provider": "EKS",
    "eks": {
        "instanceType": "p5en.48xlarge",
        "diskSizeGb": 500,
        "accelerator": {"type": "nvidia-h200", "count": 8},
    },
}
BLOCK = "cr-0f9e8d7c6b5a43210"


def a_class(name: str, provisioning: Mapping[str, Any] | None) -> InferenceClass:
    spec = {
        "devices": DEVICES,
        **({"provisioning": provisioning} if provisioning else {}),
    }
    return cast(
        "InferenceClass",
        load(
            {
                "apiVersion": API,
                "kind": "InferenceClass",
                "metadata": {"name": name},
                "spec": spec,
            }
        ),
    )


def classes(**provisioning: Mapping[str, Any] | None) -> dict[str, InferenceClass]:
    """Return classes by name, including those of the tests."""
    every: dict[str, Mapping[str, Any] | None] = {
        "l4": L4,
        "g6": G6,
        "p5en": P5EN,
        **provisioning,
    }
    return {name: a_class(name, block) for name, block in every.items()}


def a_pool(name: str = "gpu", **change: Any) -> dict[str, Any]:
    return {"name": name, "className": "l4", "zones": ["europe-west4-a"], **change}


def an_eks_pool(name: str = "gpu", **change: Any) -> dict[str, Any]:
    return {"name": name, "className": "g6", "zones": ["us-east-2a"], **change}


def a_cluster(
    source: str,
    *pools: dict[str, Any],
    name: str = "prod",
    uid: str = UID,
    **block: Any,
) -> InferenceCluster:
    region = {"GKE": "europe-west4", "EKS": "us-east-2"}[source]
    spec = {
        "cluster": {"source": source, source.lower(): {"region": region, **block}},
        **({"nodePools": list(pools)} if pools else {}),
    }
    metadata = {"name": name, "uid": uid}
    return cast(
        "InferenceCluster",
        load(
            {
                "apiVersion": API,
                "kind": "InferenceCluster",
                "metadata": metadata,
                "spec": spec,
            }
        ),
    )


def gke(
    *pools: dict[str, Any],
    settings: GkeSettings | None = None,
    known: Mapping[str, InferenceClass] | None = None,
    **more: Any,
) -> Desired:
    """Compute the objects of a GKE cluster with these pools."""
    cluster = a_cluster("GKE", *pools, **more)
    return gke_objects(
        INSTALLATION,
        cluster,
        classes() if known is None else known,
        settings or GkeSettings(),
        GkeFacts(PROJECT),
    )


def eks(
    *pools: dict[str, Any],
    settings: EksSettings | None = None,
    facts: EksFacts | None = None,
    known: Mapping[str, InferenceClass] | None = None,
    **more: Any,
) -> Desired:
    """Compute the objects of an EKS cluster with these pools."""
    cluster = a_cluster("EKS", *pools, **more)
    facts = facts or EksFacts(
        zones=("us-east-2a", "us-east-2b", "us-east-2c"), principal=ROLE
    )
    return eks_objects(
        INSTALLATION,
        cluster,
        classes() if known is None else known,
        settings or EksSettings(),
        facts,
    )


def a_node(name: str, *, ready: bool = True) -> dict[str, Any]:
    """Return a node in the form of the API server."""
    conditions = [
        {"type": "MemoryPressure", "status": "False"},
        {"type": "Ready", "status": "True" if ready else "Unknown"},
    ]
    return {"metadata": {"name": name}, "status": {"conditions": conditions}}


def object_of(desired: Desired, key: str) -> DesiredObject:
    (found,) = [each for each in desired.objects if each.key == key]
    return found


def keys(desired: Desired) -> list[str]:
    return [each.key for each in desired.objects]


def some_fact(fact: Fact) -> str:
    """Return a possible fact.

    It is longer than the shortest id that a service accepts.
    """
    return f"{fact.key.replace('/', '-')}-{fact.name}".ljust(11, "-")


def filled(call: CloudCall) -> dict[str, Any]:
    """Return the arguments of a call when all facts are known."""
    return arguments(call, some_fact, TOKEN)


def call_of(desired: Desired, key: str, operation: str) -> dict[str, Any]:
    """Return the arguments of an object's only call of an operation."""
    (found,) = [
        call for call in object_of(desired, key).calls if call.operation == operation
    ]
    return filled(found)


def facts_in(value: object) -> Iterator[Fact]:
    """Return every fact that the parameters refer to."""
    if isinstance(value, Fact):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from facts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from facts_in(item)


def reasons(desired: Desired) -> list[tuple[str, str]]:
    """Return reason and place of every warning."""
    return [(problem.reason, problem.at) for problem in desired.refused]


def key_of(desired: Desired, kind: str) -> str:
    """Return the key of the only object of a kind."""
    (found,) = (each.key for each in desired.objects if each.kind == kind)
    return found


def warned(desired: Desired) -> list[tuple[str, str]]:
    """Return reason and place of every warning."""
    return [(problem.reason, problem.at) for problem in desired.warnings]
