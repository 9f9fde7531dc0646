"""The digest of all rendering inputs except the spec.

Two digests show whether pods would differ for another reason than the spec.
"""

from dataclasses import replace
from typing import Any

import pytest

from activities.render.inputs.facts import ClusterInput, ReplicaInput
from activities.render.inputs.settings import RenderSettings
from activities.render.replica import render_replica
from api_types.messages.cluster_work import CacheMount
from tests.activities.render.builders import a_cluster, a_replica, an_engine

ADAPTER = {"name": "sql", "modelCacheRef": {"name": "lora"}}
REPLICA = a_replica(
    an_engine(adapters=[ADAPTER]),
    cache="weights",
    cache_claim="claim-a",
    cache_gib=16,
    adapter_claims={"lora": "claim-l"},
    propagated_hash="1",
)
CLUSTER = a_cluster(apis=["monitoring.coreos.com/v1"])


def digest(
    replica: ReplicaInput = REPLICA,
    cluster: ClusterInput = CLUSTER,
    settings: RenderSettings | None = None,
) -> str:
    """Return the digest of the inputs of one rendering."""
    return render_replica(replica, cluster, settings or RenderSettings()).inputs_hash


OTHER_REPLICAS: list[dict[str, Any]] = [
    {"cache_claim": "claim-b"},
    {"cache_gib": 700},
    {"adapter_claims": {"lora": "claim-m"}},
    {"mounts": {"weights": CacheMount(image="registry.example/m@sha256:" + "a" * 64)}},
    {"mounts": {"lora": CacheMount(access_mode="ReadWriteOnce")}},
    {"propagated": {"Secret/token": "copy-1"}},
    {"propagated_hash": "2"},
    {"picker_flags": {"v": "4"}},
]


@pytest.mark.parametrize(
    "fields",
    OTHER_REPLICAS,
    ids=[f"{next(iter(fields))}-{n}" for n, fields in enumerate(OTHER_REPLICAS)],
)
def test_another_input_of_the_replica_changes_the_hash(fields: dict[str, Any]) -> None:
    assert digest(replace(REPLICA, **fields)) != digest()


def test_another_setting_or_fact_changes_the_hash_and_the_spec_does_not() -> None:
    assert digest(settings=RenderSettings(termination_grace_seconds=77)) != digest()
    assert (
        digest(
            cluster=a_cluster(
                apis=["monitoring.coreos.com/v1"], kubernetes_version="1.36"
            )
        )
        != digest()
    )
    spec = {**REPLICA.spec, "engines": [{**REPLICA.spec["engines"][0], "copies": 3}]}
    assert digest(replace(REPLICA, spec=spec, generation=2)) == digest()
    # Neither a patch release nor a served kind without rendered objects changes other
    # objects.
    assert (
        digest(
            cluster=a_cluster(
                apis=["acme.example/v1", "monitoring.coreos.com/v1"],
                kubernetes_version="1.35.9",
            )
        )
        == digest()
    )
