"""Check that a namespace admits the pods that are applied there.

Namespaces that Modelplane creates enforce Pod Security `baseline`, because other users
may create pods in them too. An InferenceClass may grant more to engines. The
administrator of the cluster decides in which namespaces such pods may run. Without this
check the workload would be created, but the API server would reject every pod of its
controller.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.cluster_objects.kinds import NAMESPACE
from api_types import labels
from api_types.errors import PermissionDenied

NOT_ADMITTED = "PodSecurityForbids"
_RESTRICTING = ("baseline", "restricted")
# The capabilities that `baseline` allows:
# https://kubernetes.io/docs/concepts/security/pod-security-standards/
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
    """Raise PermissionDenied if a namespace does not admit the pods' security settings.

    The message has the next step.
    """
    needed: dict[str, dict[str, None]] = {}
    for manifest in manifests:
        if grants := dict.fromkeys(_beyond_baseline(manifest)):
            needed.setdefault(manifest["metadata"]["namespace"], {}).update(grants)
    for namespace, grants in sorted(needed.items()):
        found = await cluster.get(ObjectId(NAMESPACE, "", namespace))
        level = ((found or {}).get("metadata", {}).get("labels") or {}).get(
            labels.POD_SECURITY_ENFORCE
        )
        if level in _RESTRICTING:
            raise PermissionDenied(
                f"namespace {namespace} enforces Pod Security {level}, which forbids what "
                f"the InferenceClass of the pool grants to engines ({', '.join(grants)}); if "
                "such pods may run there, have an administrator of the cluster run: kubectl "
                f"label --overwrite namespace {namespace} "
                f"{labels.POD_SECURITY_ENFORCE}=privileged",
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
        yield from (
            f"capability {name}" for name in added if name not in _BASELINE_CAPABILITIES
        )
        if (security.get("seccompProfile") or {}).get("type") == "Unconfined":
            yield "seccomp Unconfined"
