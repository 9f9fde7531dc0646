"""Deployments, LeaderWorkerSets, Jobs, and the workloads of charts: which pods they have."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api_types.digests import short_hash
from tests.simulation.fields import Json
from tests.simulation.reconciling import (
    CONTROLLER,
    Hub,
    Part,
    is_deleted,
    is_owned_by,
    is_ready,
    key_of,
    owner_reference,
    part_of,
    restarts_of,
)
from tests.simulation.store import ObjectKey

LWS = "leaderworkerset.sigs.k8s.io"
JOB_NAME = "batch.kubernetes.io/job-name"
_DEADLINE = 600


@dataclass
class _Progress:
    signature: Any = None
    since: float = 0.0


class WorkloadControllers(Part):
    """The controllers that make pods."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._progress: dict[str, _Progress] = {}
        for kind, sync in (
            ("Deployment", self._sync_deployment),
            ("ReplicaSet", self._sync_replica_set),
            ("LeaderWorkerSet", self._sync_leader_worker_set),
            ("StatefulSet", self._sync_stateful_set),
            ("DaemonSet", self._sync_daemon_set),
            ("Job", self._sync_job),
        ):
            hub.on_sync(kind, sync)

    # Deployments

    def _sync_deployment(self, key: ObjectKey, item: Json) -> None:
        if is_deleted(item):
            return
        spec = item["spec"]
        name = f"{key.name}-{short_hash(spec['template'])[:9]}"
        sets = [
            (each, found)
            for each, found in self.hub.owned(item, "ReplicaSet")
            if not is_deleted(found)
        ]
        current = next((found for each, found in sets if each.name == name), None)
        others = [(each, found) for each, found in sets if each.name != name]
        desired = spec.get("replicas", 1)
        pods = {found["metadata"]["uid"]: self.hub.pods_of(found) for _, found in sets}
        if spec.get("strategy", {}).get("type") == "Recreate":
            for each, _ in others:
                self._scale(each, 0)
            stay = any(pods[found["metadata"]["uid"]] for _, found in others)
            wanted = (current["spec"]["replicas"] if current else 0) if stay else desired
        else:
            wanted = self._rolled(spec, desired, current, others, pods)
        if current is None and (wanted or not others):
            self._create_set(key, item, name, wanted)
        elif current is not None:
            self._scale(key_of(current), wanted)
        self._clean_sets(spec, others, pods)
        self._deployment_status(key, item, desired, pods, current)

    def _rolled(
        self,
        spec: Json,
        desired: int,
        current: Json | None,
        others: list[Any],
        pods: Mapping[str, list[Json]],
    ) -> int:
        """Scale the others down and return the size of the current one, as the strategy allows."""
        rolling = spec.get("strategy", {}).get("rollingUpdate", {})
        surge = part_of(rolling.get("maxSurge", "25%"), desired, up=True)
        unavailable = part_of(rolling.get("maxUnavailable", "25%"), desired, up=False)
        if not others:
            return desired
        size = current["spec"]["replicas"] if current else 0
        own = (
            [pod for pod in pods[current["metadata"]["uid"]] if not is_deleted(pod)]
            if current
            else []
        )
        total = sum(found["spec"]["replicas"] for _, found in others)
        least = desired - unavailable
        ready = sum(map(is_ready, [pod for each in pods.values() for pod in each]))
        # Unready pods of earlier templates are deleted first.
        unready_max = max(0, total + size - least - sum(not is_ready(pod) for pod in own))
        ready_max = max(0, ready - least)
        for each, found in others:
            alive = [pod for pod in pods[found["metadata"]["uid"]] if not is_deleted(pod)]
            unready = min(unready_max, sum(not is_ready(pod) for pod in alive))
            serving = min(ready_max, found["spec"]["replicas"] - unready)
            unready_max, ready_max = unready_max - unready, ready_max - serving
            self._scale(each, found["spec"]["replicas"] - unready - serving)
            total -= unready + serving
        held = sum(len(pods[found["metadata"]["uid"]]) for _, found in others)
        room = desired + surge - max(total, held)
        return int(min(desired, max(size, room)))

    def _create_set(self, key: ObjectKey, item: Json, name: str, replicas: int) -> None:
        template = item["spec"]["template"]
        marks = {
            **template["metadata"].get("labels", {}),
            "pod-template-hash": name.rpartition("-")[2],
        }
        self.store.create(
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {
                    "name": name,
                    "namespace": key.namespace,
                    "labels": marks,
                    "ownerReferences": [owner_reference(item)],
                },
                "spec": {
                    "replicas": replicas,
                    "template": {**template, "metadata": {**template["metadata"], "labels": marks}},
                },
            },
            CONTROLLER,
        )

    def _scale(self, key: ObjectKey, replicas: int) -> None:
        self.store.set_spec(key, replicas=max(0, replicas))

    def _clean_sets(self, spec: Json, others: list[Any], pods: Mapping[str, list[Json]]) -> None:
        empty = [
            each
            for each, found in others
            if not found["spec"]["replicas"] and not pods[found["metadata"]["uid"]]
        ]
        for each in empty[: max(0, len(empty) - spec.get("revisionHistoryLimit", 10))]:
            self.store.delete(each)

    def _deployment_status(
        self,
        key: ObjectKey,
        item: Json,
        desired: int,
        pods: Mapping[str, list[Json]],
        current: Json | None,
    ) -> None:
        alive = [pod for each in pods.values() for pod in each if not is_deleted(pod)]
        own = (
            []
            if current is None
            else [pod for pod in pods[current["metadata"]["uid"]] if not is_deleted(pod)]
        )
        ready = sum(map(is_ready, alive))
        done = len(own) >= desired and ready >= desired and len(alive) == len(own)
        signature = (item["metadata"]["generation"], len(own), ready, len(alive))
        progress = self._progress.setdefault(item["metadata"]["uid"], _Progress())
        now = asyncio.get_running_loop().time()
        if signature != progress.signature:
            progress.signature, progress.since = signature, now
        limit = item["spec"].get("progressDeadlineSeconds", _DEADLINE)
        overdue = not done and now - progress.since >= limit
        if not done and not overdue:
            self.later(self._check_deadline, key, after=(limit - (now - progress.since) + 1,) * 2)
        reason = (
            "NewReplicaSetAvailable"
            if done
            else "ProgressDeadlineExceeded"
            if overdue
            else "ReplicaSetUpdated"
        )
        self.store.set_status(
            key,
            observedGeneration=item["metadata"]["generation"],
            replicas=len(alive),
            updatedReplicas=len(own),
            readyReplicas=ready,
            availableReplicas=ready,
            conditions=[
                {"type": "Available", "status": str(ready >= desired)},
                {"type": "Progressing", "status": str(not overdue), "reason": reason},
            ],
        )

    def _check_deadline(self, key: ObjectKey) -> None:
        item = self.store.get(key)
        if item is not None:
            self._sync_deployment(key, item)

    def _sync_replica_set(self, key: ObjectKey, item: Json) -> None:
        if is_deleted(item):
            return
        pods = [pod for pod in self.hub.pods_of(item) if not is_deleted(pod)]
        wanted = item["spec"]["replicas"]
        for _ in range(wanted - len(pods)):
            name = self.hub.generated(key.name)
            self.hub.create_pod(key.namespace, name, item["spec"]["template"], item)
        # Like the real controller, delete unready pods first.
        for pod in sorted(pods, key=is_ready)[: max(0, len(pods) - wanted)]:
            self.store.delete(key_of(pod), uid=pod["metadata"]["uid"])

    # LeaderWorkerSets

    def _sync_leader_worker_set(self, key: ObjectKey, item: Json) -> None:
        if is_deleted(item) or not self.behaviour.lws_runs:
            return
        spec = item["spec"]
        template, desired = spec["leaderWorkerTemplate"], spec.get("replicas", 1)
        revision = short_hash([template, spec.get("networkConfig")])[:10]
        marks = {f"{LWS}/name": key.name}
        leaders = self._stateful_set(key.namespace, key.name, item, marks)
        if leaders is None:
            return
        pods = {pod["metadata"]["name"]: pod for pod in self.hub.pods_of(leaders)}
        last = max((int(name.rpartition("-")[2]) + 1 for name in pods), default=0)
        groups = {index: pods.get(f"{key.name}-{index}") for index in range(max(desired, last))}
        down = sum(
            not (pod and self._group_is_ready(key, pod, template["size"]))
            for index, pod in groups.items()
            if index < desired
        )
        for index, pod in groups.items():
            if pod is None:
                if index < desired:
                    self._create_leader(
                        key,
                        leaders,
                        template,
                        index,
                        {**marks, f"{LWS}/template-revision-hash": revision},
                    )
            elif is_deleted(pod):
                continue
            elif index >= desired or self._is_broken(key, pod):
                self._delete_group(pod)
            elif pod["metadata"]["labels"][f"{LWS}/template-revision-hash"] != revision:
                ready = self._group_is_ready(key, pod, template["size"])
                if not ready or down < 1:
                    self._delete_group(pod)
                    down += ready
            else:
                self._create_followers(key, pod, template, index)
        alive = [pod for pod in self.hub.pods_of(leaders) if not is_deleted(pod)]
        ready_groups = sum(self._group_is_ready(key, pod, template["size"]) for pod in alive)
        updated = sum(
            pod["metadata"]["labels"][f"{LWS}/template-revision-hash"] == revision for pod in alive
        )
        self.store.set_status(
            key,
            replicas=len(alive),
            readyReplicas=ready_groups,
            updatedReplicas=updated,
            conditions=[
                {"type": "Available", "status": str(ready_groups >= desired and updated >= desired)}
            ],
        )

    def _stateful_set(
        self, namespace: str, name: str, owner: Json, marks: Mapping[str, str]
    ) -> Json | None:
        key = ObjectKey("apps", "StatefulSet", namespace, name)
        found = self.store.get(key)
        if found is None:
            metadata = {
                "name": name,
                "namespace": namespace,
                "labels": dict(marks),
                "ownerReferences": [owner_reference(owner)],
            }
            return self.store.create(
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": {}},
                CONTROLLER,
            )
        return None if is_deleted(found) or not is_owned_by(found, owner) else found

    def _create_leader(
        self, key: ObjectKey, leaders: Json, template: Json, index: int, marks: Mapping[str, str]
    ) -> None:
        made = template.get("leaderTemplate") or template["workerTemplate"]
        own = {**marks, f"{LWS}/group-index": str(index), f"{LWS}/worker-index": "0"}
        self.hub.create_pod(key.namespace, f"{key.name}-{index}", made, leaders, own)

    def _create_followers(self, key: ObjectKey, leader: Json, template: Json, index: int) -> None:
        if template["size"] < 2:
            return
        shared = {
            name: value
            for name, value in leader["metadata"]["labels"].items()
            if name.startswith(LWS)
        }
        workers = self._stateful_set(key.namespace, leader["metadata"]["name"], leader, shared)
        if workers is None:
            return
        there = {pod["metadata"]["name"] for pod in self.hub.pods_of(workers)}
        for rank in range(1, template["size"]):
            name = f"{key.name}-{index}-{rank}"
            if name not in there:
                self.hub.create_pod(
                    key.namespace,
                    name,
                    template["workerTemplate"],
                    workers,
                    {**shared, f"{LWS}/worker-index": str(rank)},
                )

    def _followers(self, key: ObjectKey, leader: Json) -> list[Json]:
        workers = self.store.get(
            ObjectKey("apps", "StatefulSet", key.namespace, leader["metadata"]["name"])
        )
        return self.hub.pods_of(workers) if workers and is_owned_by(workers, leader) else []

    def _group_is_ready(self, key: ObjectKey, leader: Json, size: int) -> bool:
        alive = [pod for pod in self._followers(key, leader) if not is_deleted(pod)]
        return is_ready(leader) and not is_deleted(leader) and len(alive) == size - 1

    def _is_broken(self, key: ObjectKey, leader: Json) -> bool:
        group = [leader, *self._followers(key, leader)]
        return any(
            pod.get("status", {}).get("phase") == "Failed" or restarts_of(pod) or is_deleted(pod)
            for pod in group
        )

    def _delete_group(self, leader: Json) -> None:
        self.store.delete(key_of(leader), uid=leader["metadata"]["uid"], propagation="Foreground")

    # Others

    def _sync_job(self, key: ObjectKey, item: Json) -> None:
        if is_deleted(item) or item.get("status", {}).get("conditions"):
            return
        pods = self.hub.pods_of(item)
        failed = [pod for pod in pods if pod.get("status", {}).get("phase") == "Failed"]
        if any(pod.get("status", {}).get("phase") == "Succeeded" for pod in pods):
            self.store.set_status(
                key, succeeded=1, conditions=[{"type": "Complete", "status": "True"}]
            )
        elif len(failed) > item["spec"].get("backoffLimit", 6):
            condition = {
                "type": "Failed",
                "status": "True",
                "reason": "BackoffLimitExceeded",
                "message": "Job has reached the backoff limit",
            }
            self.store.set_status(key, failed=len(failed), conditions=[condition])
        elif len(failed) == len(pods):
            template = item["spec"]["template"]
            name = self.hub.generated(key.name)
            self.hub.create_pod(key.namespace, name, template, item, {JOB_NAME: key.name})

    def _sync_daemon_set(self, key: ObjectKey, item: Json) -> None:
        if not is_deleted(item):
            nodes = len(self.store.find("", "Node"))
            self.store.set_status(
                key,
                observedGeneration=item["metadata"]["generation"],
                desiredNumberScheduled=nodes,
                numberAvailable=nodes,
            )

    def _sync_stateful_set(self, key: ObjectKey, item: Json) -> None:
        """Make the pods of a StatefulSet of a chart; a LeaderWorkerSet makes its own pods."""
        spec = item["spec"]
        if is_deleted(item) or "template" not in spec:
            return
        desired = spec.get("replicas", 1)
        there = {pod["metadata"]["name"]: pod for pod in self.hub.pods_of(item)}
        for index in range(desired):
            if f"{key.name}-{index}" not in there:
                self.hub.create_pod(key.namespace, f"{key.name}-{index}", spec["template"], item)
        ready = sum(map(is_ready, there.values()))
        self.store.set_status(
            key,
            observedGeneration=item["metadata"]["generation"],
            updatedReplicas=len(there),
            readyReplicas=ready,
        )
