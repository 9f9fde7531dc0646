"""The inputs that every part of one replica's rendering uses."""

from dataclasses import dataclass
from typing import Any

from activities.render.engines.spec import EngineSpec, ReplicaSpec
from activities.render.inputs.facts import ClusterInput, ReplicaInput
from activities.render.inputs.findings import Findings
from activities.render.inputs.settings import RenderSettings, workload_namespace
from activities.render.objects.manifest import RenderOwner
from activities.render.version import RENDERER_VERSION
from api_types import labels, names
from api_types.digests import short_hash
from api_types.messages.cluster_work import CacheMount, ClusterFacts
from api_types.pins.features import Feature
from api_types.resources.replica_spec import pods_source

_AS_USUAL = CacheMount()


@dataclass(frozen=True)
class Context:
    """One replica on one cluster.

    `workload` is the base name of all its objects. `namespace` is their namespace on
    the cluster.
    """

    replica: ReplicaInput
    cluster: ClusterInput
    settings: RenderSettings
    spec: ReplicaSpec
    findings: Findings
    workload: str
    namespace: str

    @classmethod
    def of(
        cls,
        replica: ReplicaInput,
        cluster: ClusterInput,
        settings: RenderSettings,
        spec: ReplicaSpec,
        findings: Findings,
    ) -> "Context":
        """Create the context and compute the shared names."""
        return cls(
            replica=replica,
            cluster=cluster,
            settings=settings,
            spec=spec,
            findings=findings,
            workload=names.workload_name(replica.namespace, replica.name),
            namespace=workload_namespace(replica.namespace, settings),
        )

    @property
    def facts(self) -> ClusterFacts:
        return self.cluster.facts

    @property
    def subject(self) -> str:
        """The replica in errors."""
        return f"ModelReplica {self.replica.namespace}/{self.replica.name}"

    def lacking(self, feature: Feature) -> str:
        """Say that the cluster lacks a feature, and what to do about it."""
        return (
            f"cluster {self.cluster.name} lacks a feature: {feature.lacking()}, or "
            "remove the field"
        )

    @property
    def owner(self) -> RenderOwner:
        """The owner in the annotations of the objects."""
        replica = self.replica
        return RenderOwner(
            "ModelReplica",
            replica.namespace,
            replica.name,
            replica.uid,
            replica.generation,
            (labels.REPLICA, self.workload),
        )

    @property
    def picker(self) -> str:
        """The name of the endpoint picker and of its objects."""
        return names.picker_name(self.workload)

    @property
    def pool(self) -> str:
        return names.inference_pool_name(self.workload)

    @property
    def cache_claim(self) -> str:
        """The volume claim to mount; empty without a cache, or while it is not ready."""
        return self.claim_of(self.spec.cache) if self.spec.cache else ""

    def claim_of(self, cache: str) -> str:
        """Return the volume claim of a model's or an adapter's cache.

        Returns "" while the cache is not ready on this cluster.
        """
        found = (
            self.replica.cache_claim
            if cache == self.spec.cache
            else self.replica.adapter_claims.get(cache)
        )
        known = self.cluster.cache_claims
        return (
            found
            or known.get(f"{self.replica.namespace}/{cache}")
            or known.get(cache, "")
        )

    def mount_of(self, cache: str) -> CacheMount:
        return self.replica.mounts.get(cache, _AS_USUAL)

    def engine_name(self, engine: EngineSpec) -> str:
        return names.engine_name(
            self.replica.namespace, self.replica.name, engine.name, gang=engine.gang
        )

    def engine_annotations(self, engine: EngineSpec) -> dict[str, str]:
        """Return annotations that identify the spec part that determines the pods."""
        trees = [
            tree for tree in self.replica.spec["engines"] if tree["name"] == engine.name
        ]
        return _pods_from(pods_source(self.replica.spec, *trees))

    def picker_annotations(self) -> dict[str, str]:
        """Return annotations that identify the inputs that determine the picker's pods.

        These are the engines, the serving mode and the picker's own flags.
        """
        source = pods_source(self.replica.spec, *self.replica.spec["engines"])
        return _pods_from(
            [*source, self.replica.spec.get("serving"), dict(self.replica.picker_flags)]
        )

    def metadata(self, name: str) -> dict[str, str]:
        return {"name": name, "namespace": self.namespace}


def _pods_from(source: list[Any]) -> dict[str, str]:
    return {labels.PODS_SOURCE: short_hash(source), labels.RENDERER: RENDERER_VERSION}
