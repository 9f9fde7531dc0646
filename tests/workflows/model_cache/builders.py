"""A cluster, an artifact on it and its observer's reports, for tests of a cache's decisions."""

from datetime import UTC, datetime, timedelta
from typing import Any

from api_types.messages.caches import CacheSite
from api_types.messages.cluster_work import Connection
from api_types.messages.observations import ObservedCache, ObservedJob, ObservedVolume
from workflows.model_cache.spec import DesiredStaging
from workflows.model_cache.state import CacheCopy, ClusterStaging

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
CONNECTION = Connection(cluster="eu-1", namespace="modelplane-system", name="eu-1")
DESIRED = DesiredStaging(
    artifact_key="key-1",
    claim="claim-1",
    revision="c1",
    generation=1,
    match_labels={"tier": "gold"},
)


def a_site(name: str = "eu-1", **fields: Any) -> CacheSite:
    """Return a connected cluster of the gold tier, with a storage class for caches."""
    plain = {
        "uid": "u",
        "sequence": 1,
        "labels": {"tier": "gold"},
        "connection": CONNECTION,
        "storage_class_name": "rwx",
    }
    return CacheSite(name=name, **{**plain, **fields})


def a_copy(**fields: Any) -> CacheCopy:
    """Return an applied artifact with a running Job."""
    return CacheCopy(
        **{
            "artifact_key": "key-1",
            "claim": "claim-1",
            "applied_generation": 1,
            "claim_digest": "d",
            "job_uid": "j1",
            "attempts": 1,
            **fields,
        }
    )


def ready(**fields: Any) -> CacheCopy:
    return a_copy(**{"ready_at": "2026-01-01T00:00:00Z", **fields})


def failed(code: int = 1, **fields: Any) -> CacheCopy:
    return a_copy(
        **{
            "failed_job_uid": "j1",
            "exit_code": code,
            "failure": "why",
            "retry_at": "2026-01-01T00:01:00Z",
            **fields,
        }
    )


def a_staging(*copies: CacheCopy, **fields: Any) -> ClusterStaging:
    return ClusterStaging(**{"site": a_site(), "copies": list(copies), **fields})


def observed(
    *,
    phase: str = "Bound",
    job: str = "",
    uid: str = "j1",
    digest: str = "d",
    **more: Any,
) -> ObservedCache:
    """Return an observation of a volume claim in this phase ("".

    None) and a Job in this state ("": none).
    """
    volumes = (
        [ObservedVolume(claim="claim-1", phase=phase, digest=digest)] if phase else []
    )
    jobs = [ObservedJob(claim="claim-1", uid=uid, state=job, **more)] if job else []
    return ObservedCache(cluster="eu-1", volumes=volumes, jobs=jobs)
