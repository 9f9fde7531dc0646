"""The scheduler and the kubelets: the nodes of pods, and their lives there."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from api_types import clock
from tests.simulation.fields import Json
from tests.simulation.reconciling import (
    CONTROLLER,
    Hub,
    Part,
    claims_of,
    is_deleted,
    is_ready,
    key_of,
    owner_reference,
    restarts_of,
)
from tests.simulation.store import ObjectKey

# The fields by which containers name the sources of their environment.
_REFERENCES = {"secretKeyRef": "Secret", "secretRef": "Secret", "configMapKeyRef": "ConfigMap"}


class Kubelets(Part):
    """The scheduler, and the kubelets of all nodes. A node has `status.devices` devices."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._devices_of: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._addresses = 10 << 24
        # The uids of volume claims that a download has filled.
        self.filled: dict[str, None] = {}
        # Pods without a node, in the order of their creation.
        self._pending: dict[ObjectKey, None] = {}
        hub.on("Pod", self._pod)
        hub.on("Node", self._node)
        for kind in ("PersistentVolumeClaim", "ResourceClaimTemplate"):
            hub.on(kind, lambda _key, _before, _after: self._schedule_soon())

    def _pod(self, key: ObjectKey, before: Json | None, after: Json | None) -> None:
        if before is None and after is not None and not after["spec"].get("nodeName"):
            self._pending[key] = None
            self.later(self._schedule)
        if after is None and before is not None:
            self._pending.pop(key, None)
            self._release(before)
        if after and is_deleted(after) and not (before and is_deleted(before)):
            self._end_pod(key, after)

    def _release(self, pod: Json) -> None:
        """Release the devices of a pod that has ended."""
        self._devices_of[pod["spec"].get("nodeName", "")].pop(pod["metadata"]["uid"], None)
        self._schedule_soon()

    def _schedule_soon(self) -> None:
        if self._pending:
            self.later(self._schedule)

    def _schedule(self) -> None:
        """Bind every pod that fits somewhere, in the order of creation."""
        nodes = [
            node
            for node in self.store.find("", "Node")
            if is_ready(node) and not node["spec"].get("unschedulable")
        ]
        every = len(self.store.find("", "Node"))
        for key in list(self._pending):
            pod = self.store.get(key)
            if pod is None or pod["spec"].get("nodeName"):
                self._pending.pop(key)
                continue
            if is_deleted(pod):
                continue
            missing = self._unready_volume(pod)
            needed, problem = self._devices(pod)
            problem = missing or problem
            fitting = [] if problem else [node for node in nodes if self._fits(node, pod, needed)]
            if fitting:
                self._bind(pod, fitting[self.draw.randrange(len(fitting))], needed)
                continue
            why = problem or f"0/{every} nodes are available: cannot allocate all claims"
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": why,
            }
            self.store.set_status(key, conditions=[condition])

    def devices_of(self, pod: Json) -> int:
        """Count the devices that a pod asks for, as far as that is known."""
        held = self._devices_of[pod["spec"].get("nodeName", "")].get(pod["metadata"]["uid"])
        return self._devices(pod)[0] if held is None else held

    def _devices(self, pod: Json) -> tuple[int, str]:
        """Return the devices of a pod, or the reason that they are unknown."""
        needed = 0
        for claim in pod["spec"].get("resourceClaims", ()):
            name = claim.get("resourceClaimTemplateName", "")
            template = self.store.get(
                ObjectKey(
                    "resource.k8s.io", "ResourceClaimTemplate", pod["metadata"]["namespace"], name
                )
            )
            if template is None:
                return (
                    0,
                    f'resourceclaimtemplate.resource.k8s.io "{name}" not found',
                )
            for request in template["spec"]["spec"]["devices"]["requests"]:
                needed += request.get("exactly", request).get("count", 1)
        for container in pod["spec"].get("containers", ()):
            limits = container.get("resources", {}).get("limits", {})
            needed += sum(int(value) for name, value in limits.items() if "/" in name)
        return needed, ""

    def _unready_volume(self, pod: Json) -> str:
        for volume in pod["spec"].get("volumes", ()):
            if "persistentVolumeClaim" not in volume:
                continue
            name = volume["persistentVolumeClaim"]["claimName"]
            claim = self.store.get(
                ObjectKey("", "PersistentVolumeClaim", pod["metadata"]["namespace"], name)
            )
            if claim is None or is_deleted(claim):
                return f'persistentvolumeclaim "{name}" not found'
            if claim.get("status", {}).get("phase") != "Bound":
                return "pod has unbound immediate PersistentVolumeClaims"
        return ""

    def _fits(self, node: Json, pod: Json, needed: int) -> bool:
        marks = node["metadata"].get("labels", {})
        if any(
            marks.get(name) != value for name, value in pod["spec"].get("nodeSelector", {}).items()
        ):
            return False
        free = node["status"].get("devices", 0) - sum(
            self._devices_of[node["metadata"]["name"]].values()
        )
        return bool(needed <= free)

    def _bind(self, pod: Json, node: Json, needed: int) -> None:
        key, metadata = key_of(pod), pod["metadata"]
        self._devices_of[node["metadata"]["name"]][metadata["uid"]] = needed
        for claim in pod["spec"].get("resourceClaims", ()):
            self._create_claim(pod, claim, node)
        self.store.set_status(key, conditions=[{"type": "PodScheduled", "status": "True"}])
        self.store.set_spec(key, nodeName=node["metadata"]["name"])
        self.later(self._start, key, metadata["uid"], after=self.behaviour.start)

    def _create_claim(self, pod: Json, claim: Json, node: Json) -> None:
        metadata = pod["metadata"]
        template = self.store.get(
            ObjectKey(
                "resource.k8s.io",
                "ResourceClaimTemplate",
                metadata["namespace"],
                claim["resourceClaimTemplateName"],
            )
        )
        if template is None:
            return
        name = self.hub.generated(f"{metadata['name']}-{claim['name']}")
        requests = template["spec"]["spec"]["devices"]["requests"]
        results = [
            {"driver": "gpu.nvidia.com", "pool": node["metadata"]["name"], "request": each["name"]}
            for each in requests
        ]
        self.store.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {
                    "name": name,
                    "namespace": metadata["namespace"],
                    "ownerReferences": [owner_reference(pod)],
                },
                "spec": template["spec"]["spec"],
                "status": {"allocation": {"devices": {"results": results}}},
            },
            CONTROLLER,
        )

    def _current_pod(self, key: ObjectKey, uid: str) -> Json | None:
        pod = self.store.get(key)
        return pod if pod and pod["metadata"]["uid"] == uid and not is_deleted(pod) else None

    def _start(self, key: ObjectKey, uid: str) -> None:
        pod = self._current_pod(key, uid)
        if pod is None:
            return
        if not self._has_node(pod):
            self.later(self._start, key, uid, after=(20.0, 40.0))
            return
        if problem := self._missing_reference(pod):
            self._waiting(key, pod, "CreateContainerConfigError", problem)
            self.later(self._start, key, uid, after=(10.0, 60.0))
        elif self.draw.random() < self.behaviour.image_fails:
            self._waiting(key, pod, "ImagePullBackOff", "Back-off pulling image")
            self.later(self._start, key, uid, after=(20.0, 300.0))
        elif _is_of_job(pod):
            self._run(key, pod)
            self.later(self._end_download, key, uid, after=self.behaviour.job)
        else:
            self._run(key, pod)
            self.later(self._become_ready, key, uid, after=self.behaviour.ready)

    def _missing_reference(self, pod: Json) -> str:
        """Return a message about a missing Secret or ConfigMap of a pod, or an empty text."""
        for kind, reference in _references(pod):
            key = ObjectKey("", kind, pod["metadata"]["namespace"], reference["name"])
            if not reference.get("optional") and self.store.get(key) is None:
                return f'{kind.lower()} "{key.name}" not found'
        return ""

    def _waiting(self, key: ObjectKey, pod: Json, reason: str, message: str) -> None:
        waiting = {"reason": reason, "message": message}
        states = [
            {"name": each["name"], "ready": False, "state": {"waiting": waiting}}
            for each in pod["spec"].get("containers", ())
        ]
        self.store.set_status(key, phase="Pending", containerStatuses=states)

    def _run(self, key: ObjectKey, pod: Json, restarts: int = 0) -> None:
        now = clock.timestamp(clock.utc_now())
        self._addresses += 1
        running = [
            {
                "name": each["name"],
                "ready": False,
                "started": True,
                "restartCount": restarts,
                "state": {"running": {"startedAt": now}},
            }
            for each in pod["spec"].get("containers", ())
        ]
        self.store.set_status(
            key,
            phase="Running",
            startTime=pod.get("status", {}).get("startTime", now),
            podIP=".".join(str(self._addresses >> bits & 255) for bits in (24, 16, 8, 0)),
            containerStatuses=running,
            conditions=[
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "False", "lastTransitionTime": now},
            ],
        )

    def _become_ready(self, key: ObjectKey, uid: str) -> None:
        pod = self._current_pod(key, uid)
        if pod is None or not self._has_node(pod):
            return
        if self.draw.random() < self.behaviour.crashes:
            self.crash(key)
            return
        states = [{**each, "ready": True} for each in pod["status"].get("containerStatuses", ())]
        self._set_ready(key, ready=True, containerStatuses=states)

    def _set_ready(self, key: ObjectKey, *, ready: bool, **parts: Any) -> None:
        now = clock.timestamp(clock.utc_now())
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": now}
        self.store.set_status(
            key, conditions=[{"type": "PodScheduled", "status": "True"}, condition], **parts
        )

    def probe(self, key: ObjectKey, *, ready: bool) -> bool:
        """Let the readiness probe of a running engine pass or fail; return whether it runs."""
        pod = self.store.get(key)
        if pod is None or is_deleted(pod) or _is_of_job(pod) or not self._has_node(pod):
            return False
        before = pod.get("status", {}).get("containerStatuses", ())
        waits = any("waiting" in each.get("state", {}) for each in before)
        if waits or pod.get("status", {}).get("phase") != "Running":
            return False
        self._set_ready(key, ready=ready, containerStatuses=[{**c, "ready": ready} for c in before])
        return True

    def crash(self, key: ObjectKey) -> None:
        """Crash the engine of a pod; the kubelet restarts it."""
        pod = self.store.get(key)
        if pod is None or is_deleted(pod) or pod.get("status", {}).get("phase") != "Running":
            return
        ended = {"terminated": {"exitCode": 1, "finishedAt": clock.timestamp(clock.utc_now())}}
        before = pod["status"].get("containerStatuses", ())
        states = [
            {
                **each,
                "ready": False,
                "restartCount": each.get("restartCount", 0) + 1,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": ended,
            }
            for each in before
        ]
        self._set_ready(key, ready=False, containerStatuses=states)
        self.later(self._restart, key, pod["metadata"]["uid"], after=(10.0, 300.0))

    def _restart(self, key: ObjectKey, uid: str) -> None:
        pod = self._current_pod(key, uid)
        if pod is not None and self._has_node(pod):
            self._run(key, pod, restarts=restarts_of(pod))
            self.later(self._become_ready, key, uid, after=self.behaviour.ready)

    def fail(self, key: ObjectKey, reason: str = "Evicted") -> None:
        """End a pod for good, as a node under pressure does; the object stays."""
        pod = self.store.get(key)
        if pod is not None and not is_deleted(pod):
            self.store.set_status(
                key,
                phase="Failed",
                reason=reason,
                conditions=[{"type": "Ready", "status": "False"}],
            )
            self._release(pod)

    def _end_pod(self, key: ObjectKey, pod: Json) -> None:
        grace = float(pod["spec"].get("terminationGracePeriodSeconds", 30))
        self._set_ready(key, ready=False)
        low, high = self.behaviour.end
        self.later(
            self._pod_ended,
            key,
            pod["metadata"]["uid"],
            after=(min(low, grace), min(high, max(grace, 0.1))),
        )

    def _pod_ended(self, key: ObjectKey, uid: str) -> None:
        pod = self.store.get(key)
        if pod is None or pod["metadata"]["uid"] != uid:
            return
        if not self._has_node(pod):
            # Nothing reports the end of its containers. Either the node comes back, or
            # the pod is deleted with the node object.
            self.later(self._pod_ended, key, uid, after=(20.0, 60.0))
            return
        if pod["metadata"].get("finalizers"):
            self.later(self._pod_ended, key, uid, after=(1.0, 5.0))
            return
        self.store.remove(key)

    def _has_node(self, pod: Json) -> bool:
        """Return whether a kubelet acts on a pod, or its node is gone with all containers."""
        node = self.store.get(ObjectKey("", "Node", "", pod["spec"].get("nodeName", "")))
        return node is None or is_ready(node)

    def _end_download(self, key: ObjectKey, uid: str) -> None:
        pod = self._current_pod(key, uid)
        if pod is None:
            return
        if not self._has_node(pod):
            self.later(self._end_download, key, uid, after=(20.0, 60.0))
            return
        failed = self.draw.random() < self.behaviour.download_fails
        now = clock.timestamp(clock.utc_now())
        ended = {
            "exitCode": 1 if failed else 0,
            "finishedAt": now,
            "message": "the hub reset the connection" if failed else self.behaviour.staged(pod),
        }
        states = [
            {"name": each["name"], "ready": False, "state": {"terminated": ended}}
            for each in pod["spec"].get("containers", ())
        ]
        self._set_ready(
            key, ready=False, phase="Failed" if failed else "Succeeded", containerStatuses=states
        )
        self._release(pod)
        for name in [] if failed else claims_of(pod):
            claim = self.store.get(ObjectKey("", "PersistentVolumeClaim", key.namespace, name))
            if claim is not None:
                self.filled[claim["metadata"]["uid"]] = None

    def _node(self, key: ObjectKey, before: Json | None, after: Json | None) -> None:
        self._schedule_soon()
        if after is None:
            self.later(self._collect_pods, key.name, after=(20.0, 60.0))
        elif before and is_ready(before) and not is_ready(after):
            self.later(self._lose_pods, key.name, after=(0.0, 1.0))
            self.later(self._evict_pods, key.name, after=(300.0, 310.0))
        elif before and not is_ready(before) and is_ready(after):
            self.later(self._find_pods, key.name)

    def _pods_on(self, node: str) -> list[Json]:
        return [pod for pod in self.store.find("", "Pod") if pod["spec"].get("nodeName") == node]

    def _collect_pods(self, node: str) -> None:
        if self.store.get(ObjectKey("", "Node", "", node)) is None:
            for pod in self._pods_on(node):
                self.store.remove(key_of(pod))

    def _lose_pods(self, node: str) -> None:
        for pod in self._pods_on(node):
            self._set_ready(key_of(pod), ready=False)

    def _evict_pods(self, node: str) -> None:
        found = self.store.get(ObjectKey("", "Node", "", node))
        if found is not None and not is_ready(found):
            for pod in self._pods_on(node):
                self.store.delete(key_of(pod), uid=pod["metadata"]["uid"])

    def _find_pods(self, node: str) -> None:
        for pod in self._pods_on(node):
            if is_deleted(pod):
                self._pod_ended(key_of(pod), pod["metadata"]["uid"])
            elif pod.get("status", {}).get("phase") == "Running":
                self.later(
                    self._become_ready,
                    key_of(pod),
                    pod["metadata"]["uid"],
                    after=self.behaviour.reaction,
                )


def _is_of_job(pod: Json) -> bool:
    return any(each["kind"] == "Job" for each in pod["metadata"].get("ownerReferences", ()))


def _references(pod: Json) -> Iterator[tuple[str, Json]]:
    for container in pod["spec"].get("containers", ()):
        variables = [each.get("valueFrom", {}) for each in container.get("env", ())]
        for source in (*variables, *container.get("envFrom", ())):
            for name, kind in _REFERENCES.items():
                if name in source:
                    yield kind, source[name]
