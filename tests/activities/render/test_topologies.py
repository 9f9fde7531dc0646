"""Every rendered field is set in a topology.

Only those fields are in golden files and reach a real API server.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from activities.render.cache.volumes import render_cache
from activities.render.inputs.facts import CacheInput, ClusterInput, ReplicaInput
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.rendered import Rendered
from activities.render.replica import render_replica
from api_types.resources.model_cache import ModelCacheSpec
from api_types.resources.model_replica import ModelReplicaSpec
from api_types.resources.parts.base_types import ResourceModel
from api_types.resources.parts.pod_policy import PodPolicy
from tests.activities.render import builders, topologies

Given = dict[type[ResourceModel], list[Any]]

# Fields that put no further field on a cluster, each with the reason. This includes
# their nested fields.
EXCUSED = {
    **dict.fromkeys(
        (
            f"ModelReplicaSpec.engines.profile.{name}"
            for name in (
                "servedNameFlag",
                "loopback",
                "adapters",
                "finishesRequests",
                "parallelFlags",
            )
        ),
        "only admission of deployments reads it",
    ),
    "ModelCacheSpec.clusterSelector": "chooses clusters",
    "ModelCacheSpec.volume.image": "nothing is staged; `gang-image` mounts what it means",
    "ModelCacheSpec.oci.plainHTTP": "the value of a variable that is there anyway",
    "ModelCacheSpec.s3.region": "the value of a variable that is there anyway",
    "ModelCacheSpec.s3.authSecret.key": "the value of a key that is there anyway",
}


def fields(model: type[BaseModel], before: str) -> Iterator[str]:
    """Return the paths of all fields of a model and its nested models, without indexes."""
    for name, field in model.model_fields.items():
        path = f"{before}.{field.serialization_alias or field.alias or name}"
        yield path
        for inner in models_in(field.annotation):
            yield from fields(inner, path)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for part in get_args(annotation):
        yield from models_in(part)


def given_in(tree: Any, before: str) -> Iterator[str]:
    """Return the paths that a document sets."""
    if isinstance(tree, Mapping):
        for name, inner in tree.items():
            yield f"{before}.{name}"
            yield from given_in(inner, f"{before}.{name}")
    elif isinstance(tree, list | tuple):
        for inner in tree:
            yield from given_in(inner, before)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """Return the documents from which the topologies are rendered, by model."""
    found: Given = {ModelReplicaSpec: [], ModelCacheSpec: [], PodPolicy: []}

    def replica(
        what: ReplicaInput, cluster: ClusterInput, settings: RenderSettings
    ) -> Rendered:
        found[ModelReplicaSpec].append(what.spec)
        found[ModelCacheSpec].extend(
            mount.node_local.spec for mount in what.mounts.values() if mount.node_local
        )
        found[PodPolicy].extend(cluster.facts.pod_policies.values())
        return render_replica(what, cluster, settings)

    def cache(
        what: CacheInput, cluster: ClusterInput, settings: RenderSettings
    ) -> Rendered:
        found[ModelCacheSpec].append(what.spec)
        return render_cache(what, cluster, settings)

    monkeypatch.setattr(builders, "render_replica", replica)
    monkeypatch.setattr(topologies, "render_cache", cache)
    makers: list[Callable[[], Rendered]] = list(topologies.TOPOLOGIES.values())
    for make in makers:
        make()
    return found


@pytest.mark.parametrize(
    "model",
    [ModelReplicaSpec, ModelCacheSpec, PodPolicy],
    ids=lambda model: model.__name__,
)
def test_every_field_is_set_in_a_topology(
    model: type[ResourceModel], given: Given
) -> None:
    documents = json.loads(json.dumps(given[model], default=dict))
    wanted, found = (
        set(fields(model, model.__name__)),
        set(given_in(documents, model.__name__)),
    )
    excused = {path for path in EXCUSED if path.startswith(f"{model.__name__}.")}
    assert {
        path
        for path in wanted - found
        if not any(f"{path}.".startswith(f"{one}.") for one in excused)
    } == set()
    assert excused - (wanted - found) == set(), (
        "excuses what is no field, or is set in a topology"
    )
