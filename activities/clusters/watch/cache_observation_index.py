"""The observed state of the caches on a cluster, by owner."""

from collections import defaultdict
from collections.abc import Callable

from activities.cluster_objects.ownership import ObjectOwner
from activities.observe.cache import JobPodSeen, JobSeen, VolumeSeen, observe_cache
from activities.watching.reflector import NamespacedName
from api_types.messages.observations import ObservedCache


class CacheObservationIndex:
    """Volume claims, Jobs and pods of caches.

    Every changed cache is passed to `enqueue`.
    """

    def __init__(self, cluster: str, enqueue: Callable[[ObjectOwner], None]) -> None:
        self._cluster = cluster
        self._enqueue = enqueue
        self._volumes: dict[NamespacedName, VolumeSeen] = {}
        self._jobs: dict[NamespacedName, JobSeen] = {}
        self._owners_of_jobs: dict[str, ObjectOwner] = {}
        self._pods: dict[NamespacedName, JobPodSeen] = {}
        self._pods_of: defaultdict[str, dict[NamespacedName, JobPodSeen]] = defaultdict(
            dict
        )
        self._owned: defaultdict[ObjectOwner, dict[NamespacedName, None]] = defaultdict(
            dict
        )

    def owners(self) -> list[ObjectOwner]:
        """Return the caches that have, or had, objects on the cluster."""
        return list(self._owned)

    def counts(self) -> dict[str, int]:
        """Return the counters for the heartbeat."""
        return {"caches": len(self._owned), "cachePods": len(self._pods)}

    def put_volume(self, key: NamespacedName, seen: VolumeSeen | None) -> None:
        """Store one volume claim, or drop it."""
        old = self._volumes.pop(key, None)
        if seen:
            self._volumes[key] = seen
        self._own(key, old.owner if old else None, seen.owner if seen else None)

    def put_job(self, key: NamespacedName, seen: JobSeen | None) -> None:
        """Store one Job, or drop it."""
        old = self._jobs.pop(key, None)
        if old:
            self._owners_of_jobs.pop(old.uid, None)
        if seen:
            self._jobs[key] = seen
            self._owners_of_jobs[seen.uid] = seen.owner
        self._own(key, old.owner if old else None, seen.owner if seen else None)

    def put_pod(self, key: NamespacedName, seen: JobPodSeen | None) -> None:
        """Store one pod of a Job, or drop it."""
        old = self._pods.pop(key, None)
        if old:
            pods = self._pods_of[old.job_uid]
            pods.pop(key, None)
            if not pods:
                del self._pods_of[old.job_uid]
        if seen:
            self._pods[key] = seen
            self._pods_of[seen.job_uid][key] = seen
        for pod in (old, seen):
            owner = self._owners_of_jobs.get(pod.job_uid) if pod else None
            if owner:
                self._enqueue(owner)

    def observation_for(self, owner: ObjectOwner) -> ObservedCache:
        """Build the current observation of a cache."""
        volumes, jobs, pods = list[VolumeSeen](), list[JobSeen](), list[JobPodSeen]()
        for key in self._owned.get(owner, {}):
            volume, job = self._volumes.get(key), self._jobs.get(key)
            if volume and volume.owner == owner:
                volumes.append(volume)
            if job and job.owner == owner:
                jobs.append(job)
                pods += self._pods_of.get(job.uid, {}).values()
        return observe_cache(self._cluster, volumes, jobs, pods)

    def is_empty(self, owner: ObjectOwner) -> bool:
        return not self._owned.get(owner)

    def forget(self, owner: ObjectOwner) -> None:
        """Drop a cache if it has no objects on the cluster."""
        if not self._owned.get(owner, True):
            del self._owned[owner]

    def _own(
        self, key: NamespacedName, before: ObjectOwner | None, after: ObjectOwner | None
    ) -> None:
        # A claim and a Job never share a key: the name of a Job is its claim's name
        # with a suffix.
        if before:
            self._owned[before].pop(key, None)
            self._enqueue(before)
        if after:
            self._owned[after][key] = None
            self._enqueue(after)
