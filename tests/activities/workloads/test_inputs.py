"""The fields of a replica's order reach its rendering."""

from activities.workloads.copies import Needed
from activities.workloads.inputs import _replica
from api_types.messages.cluster_work import (
    ApplyReplica,
    CacheMount,
    ClusterFacts,
    Connection,
)
from tests.activities.render.builders import CLAIM

MOUNTS = {"qwen": CacheMount(access_mode="ReadWriteOnce")}


def test_the_claim_of_the_cache_and_its_size_are_passed_on() -> None:
    order = ApplyReplica(
        connection=Connection(cluster="eu", namespace="modelplane-system", name="eu"),
        facts=ClusterFacts(),
        namespace="ml",
        name="qwen-1",
        uid="u",
        generation=1,
        deployment="qwen",
        cluster="eu",
        index=0,
        spec={},
        cache_claim=CLAIM,
        cache_gib=850,
        mounts=MOUNTS,
    )
    replica = _replica(order, Needed())
    assert (replica.cache_claim, replica.cache_gib, replica.mounts) == (
        CLAIM,
        850,
        MOUNTS,
    )
