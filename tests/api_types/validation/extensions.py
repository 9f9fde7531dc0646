"""Extensions of this resource model beyond Modelplane v0.3.1.

A manifest for v0.3.1 applies here unchanged; in the other direction these fields need
attention. The exported schema differs from the reference definitions exactly by this
list.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Extension:
    """One addition to a kind."""

    kind: str
    path: str
    """JSON path below the object; `[]` is any item of a list or map."""
    change: Literal["field", "choice", "bound", "optional"]
    """A new field or choice, a wider bound, or a field that is no longer required."""
    what: str


EXTENSIONS = (
    Extension(
        "ModelService",
        "spec.endpoints[].name",
        "field",
        "by which `service shift` and status name an entry",
    ),
    Extension(
        "ModelService", "spec.endpoints[].priority", "field", "failover between entries"
    ),
    Extension("ModelService", "status.summary", "field", "columns of lists"),
    Extension(
        "ModelService", "status.route", "field", "the HTTPRoute on the control cluster"
    ),
    Extension("ModelService", "status.entries", "field", "the endpoints of each entry"),
    Extension(
        "ModelService", "status.endpoints", "field", "the endpoints in the route"
    ),
    Extension("InferenceClass", "spec.devices[].claim", "choice", "DevicePlugin"),
    Extension(
        "InferenceClass",
        "spec.devices[].resourceName",
        "field",
        "extended resource of a DevicePlugin device",
    ),
    Extension(
        "InferenceClass",
        "spec.podPolicy",
        "field",
        "settings for engine pods on nodes of the class",
    ),
    Extension(
        "InferenceCluster",
        "spec.cluster.gke.project",
        "field",
        "deprecated; overrides the project of the credentials",
    ),
    Extension("ServingStack", "status.source", "field", "the source of its cluster"),
    Extension(
        "ServingStack",
        "status.components",
        "field",
        "releases with version, revision and deviation",
    ),
    Extension(
        "ServingStack", "status.stages", "field", "the stages that are not complete"
    ),
    Extension(
        "ModelDeployment", "spec.replicas", "bound", "0 to 1000 instead of 1 to 10"
    ),
    Extension(
        "ModelDeployment",
        "spec.rollout",
        "field",
        "how a changed template reaches the replicas",
    ),
    Extension(
        "ModelDeployment",
        "spec.drain",
        "field",
        "how fast replicas leave a drained cluster",
    ),
    Extension("ModelDeployment", "spec.scheduling", "field", "placement policy"),
    Extension(
        "ModelDeployment",
        "spec.template.spec.engines[].spanPools",
        "field",
        "copies may be split over pools",
    ),
    Extension(
        "ModelDeployment",
        "spec.template.spec.engines[].members[].podsPerNode",
        "field",
        "pods of a member that may share a node",
    ),
    Extension(
        "ModelDeployment",
        "spec.template.spec.engines[].drain",
        "field",
        "how the pods of an engine stop",
    ),
    Extension(
        "ModelDeployment",
        "spec.template.spec.disruption",
        "field",
        "the minimum that evictions leave of a replica",
    ),
    Extension(
        "ModelReplica",
        "spec.engines[].drain",
        "field",
        "how the pods of an engine stop",
    ),
    Extension(
        "ModelReplica",
        "spec.disruption",
        "field",
        "the minimum that evictions leave of a replica",
    ),
    Extension(
        "ModelDeployment",
        "spec.template.spec.engines[].topology",
        "field",
        "how close together pods and their devices are",
    ),
    Extension(
        "ModelDeployment",
        "spec.template.spec.engines[].dataParallel",
        "field",
        "ranks within a pod",
    ),
    Extension(
        "ModelDeployment",
        "spec.template.spec.serving.flowControl",
        "field",
        "where requests wait",
    ),
    Extension(
        "ModelReplica", "spec.engines[].dataParallel", "field", "ranks within a pod"
    ),
    Extension(
        "ModelReplica", "spec.serving.flowControl", "field", "where requests wait"
    ),
    Extension(
        "ModelDeployment",
        "spec.template.spec.serving.prefixCache",
        "field",
        "how the picker finds cached prompts",
    ),
    Extension(
        "ModelReplica",
        "spec.serving.prefixCache",
        "field",
        "how the picker finds cached prompts",
    ),
    Extension(
        "ModelDeployment",
        "spec.template.spec.engines[].adapters",
        "field",
        "LoRA adapters",
    ),
    Extension("ModelReplica", "spec.engines[].adapters", "field", "LoRA adapters"),
    Extension(
        "ModelReplica",
        "spec.engines[].topology",
        "field",
        "how close together pods and their devices are",
    ),
    Extension(
        "ModelDeployment",
        "spec.template.spec.engines[].members[].probes",
        "field",
        "time limit for loading, and liveness check",
    ),
    Extension(
        "ModelReplica",
        "spec.engines[].members[].probes",
        "field",
        "time limit for loading, and liveness check",
    ),
    Extension(
        "ModelReplica",
        "spec.engines[].members[].podsPerNode",
        "field",
        "pods of a member that may share a node",
    ),
    Extension(
        "ModelReplica",
        "spec.engines[].members[].deviceRequests[].resourceName",
        "field",
        "a request granted by a device plugin",
    ),
    Extension(
        "ModelReplica",
        "spec.engines[].members[].deviceRequests[].deviceClassName",
        "optional",
        "either it or resourceName",
    ),
    Extension(
        "ModelCache",
        "spec.huggingFace.allowPatterns",
        "field",
        "which files are staged",
    ),
    Extension(
        "ModelCache",
        "spec.huggingFace.ignorePatterns",
        "field",
        "which files are not staged",
    ),
    Extension(
        "ModelCache",
        "spec.hydration",
        "field",
        "how the Jobs that stage it reach the source, and where they run",
    ),
    Extension("ModelCache", "spec.source", "choice", "OCI"),
    Extension("ModelCache", "spec.source", "choice", "S3"),
    Extension(
        "ModelCache",
        "spec.s3",
        "field",
        "a model in a bucket of S3, or of a server with its protocol",
    ),
    Extension(
        "ModelCache",
        "spec.volume",
        "field",
        "the type of the volumes, or an image in their place",
    ),
    Extension("ModelCache", "spec.oci", "field", "a model packed as an OCI artifact"),
)
