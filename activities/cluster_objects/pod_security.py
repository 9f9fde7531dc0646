"""Whether a namespace admits the pods that are to be applied there.

Namespaces that Modelplane creates enforce Pod Security `baseline`, whoever else may make pods in them. An InferenceClass may grant more to
engines; where that may run is up to the administrator of the cluster, namespace by namespace. Without this check the workload would be
there, and its controller would be refused each pod.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.cluster_objects.kinds import NAMESPACE
from api_types import labels
from api_types.errors import PermissionDenied

NOT_ADMITTED = "PodSecurityForbids"
_RESTRICTING = ("baseline", "restricted")
# https://kubernetes.io/docs/concepts/security/pod-security-standards/: the capabilities that `baseline` allows.
_BASELINE_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)


async def check_pod_security(cluster: ClusterApi, manifests: Iterable[Json]) -> None:
    """Raise PermissionDenied, with the next step, for pods of a namespace that does not admit what they are granted."""
    needed: dict[str, dict[str, None]] = {}
    for manifest in manifests:
        if grants := dict.fromkeys(_beyond_baseline(manifest)):
            needed.setdefault(manifest["metadata"]["namespace"], {}).update(grants)
    for namespace, grants in sorted(needed.items()):
        found = await cluster.get(ObjectId(NAMESPACE, "", namespace))
        level = ((found or {}).get("metadata", {}).get("labels") or {}).get(labels.POD_SECURITY_ENFORCE)
        if level in _RESTRICTING:
            raise PermissionDenied(
                f"namespace {namespace} enforces Pod Security {level}, which forbids what the InferenceClass of the pool grants to engines "
                f"({', '.join(grants)}); if such pods may run there, have an administrator of the cluster run: "
                f"kubectl label --overwrite namespace {namespace} {labels.POD_SECURITY_ENFORCE}=privileged",
                NOT_ADMITTED,
            )


def _beyond_baseline(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield from _of_pod(value)
        for inner in value.values():
            yield from _beyond_baseline(inner)


def _of_pod(pod: Json) -> Iterator[str]:
    for container in [pod, *pod["containers"], *pod.get("initContainers", ())]:
        security = container.get("securityContext") or {}
        added = (security.get("capabilities") or {}).get("add") or ()
        yield from (f"capability {name}" for name in added if name not in _BASELINE_CAPABILITIES)
        if (security.get("seccompProfile") or {}).get("type") == "Unconfined":
            yield "seccomp Unconfined"
