"""The observed state of the caches on a cluster, by owner."""

from collections import defaultdict
from collections.abc import Callable

from activities.cluster_objects.ownership import Owner
from activities.observe.cache import JobPodSeen, JobSeen, VolumeSeen, observe_cache
from activities.watching.reflector import Key
from api_types.messages.observations import ObservedCache


class CacheObservationIndex:
    """Volume claims, Jobs and pods of caches. `enqueue` is called with every cache for which something changed."""

    def __init__(self, cluster: str, enqueue: Callable[[Owner], None]) -> None:
        self._cluster = cluster
        self._enqueue = enqueue
        self._volumes: dict[Key, VolumeSeen] = {}
        self._jobs: dict[Key, JobSeen] = {}
        self._owners_of_jobs: dict[str, Owner] = {}
        self._pods: dict[Key, JobPodSeen] = {}
        self._pods_of: defaultdict[str, dict[Key, JobPodSeen]] = defaultdict(dict)
        self._owned: defaultdict[Owner, dict[Key, None]] = defaultdict(dict)

    def owners(self) -> list[Owner]:
        """Give the caches that have, or had, objects here."""
        return list(self._owned)

    def counts(self) -> dict[str, int]:
        """Give how much is kept, for the heartbeat."""
        return {"caches": len(self._owned), "cachePods": len(self._pods)}

    def put_volume(self, key: Key, seen: VolumeSeen | None) -> None:
        """Keep one volume claim, or drop it."""
        old = self._volumes.pop(key, None)
        if seen:
            self._volumes[key] = seen
        self._own(key, old.owner if old else None, seen.owner if seen else None)

    def put_job(self, key: Key, seen: JobSeen | None) -> None:
        """Keep one Job, or drop it."""
        old = self._jobs.pop(key, None)
        if old:
            self._owners_of_jobs.pop(old.uid, None)
        if seen:
            self._jobs[key] = seen
            self._owners_of_jobs[seen.uid] = seen.owner
        self._own(key, old.owner if old else None, seen.owner if seen else None)

    def put_pod(self, key: Key, seen: JobPodSeen | None) -> None:
        """Keep one pod of a Job, or drop it."""
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
            if pod and (owner := self._owners_of_jobs.get(pod.job_uid)):
                self._enqueue(owner)

    def observation_for(self, owner: Owner) -> ObservedCache:
        """Build what a cache should know now."""
        keys = self._owned.get(owner, {})
        volumes = [volume for key in keys if (volume := self._volumes.get(key)) and volume.owner == owner]
        jobs = [job for key in keys if (job := self._jobs.get(key)) and job.owner == owner]
        pods = [pod for job in jobs for pod in self._pods_of.get(job.uid, {}).values()]
        return observe_cache(self._cluster, volumes, jobs, pods)

    def is_empty(self, owner: Owner) -> bool:
        """Tell whether a cache has no objects here any more."""
        return not self._owned.get(owner)

    def forget(self, owner: Owner) -> None:
        """Drop a cache that has no objects here any more."""
        if not self._owned.get(owner, True):
            del self._owned[owner]

    def _own(self, key: Key, before: Owner | None, after: Owner | None) -> None:
        # A claim and a Job never share a key: the name of a Job is its claim's with a suffix.
        if before:
            self._owned[before].pop(key, None)
            self._enqueue(before)
        if after:
            self._owned[after][key] = None
            self._enqueue(after)
