"""What every part of one replica's rendering needs to see, gathered once."""

from dataclasses import dataclass
from typing import Any

from activities.render.engines.spec import Engine, ReplicaSpec
from activities.render.inputs.facts import ClusterInput, ReplicaInput
from activities.render.inputs.findings import Findings
from activities.render.inputs.settings import RenderSettings, workload_namespace
from activities.render.objects.manifest import Owner
from activities.render.version import RENDERER_VERSION
from api_types import labels, names
from api_types.digests import short_hash
from api_types.messages.cluster_work import CacheMount, ClusterFacts
from api_types.resources.replica_spec import pods_source

_AS_USUAL = CacheMount()


@dataclass(frozen=True)
class Context:
    """One replica on one cluster. `workload` is the base name of all its objects, `namespace` their namespace on the cluster."""

    replica: ReplicaInput
    cluster: ClusterInput
    settings: RenderSettings
    spec: ReplicaSpec
    findings: Findings
    workload: str
    namespace: str

    @classmethod
    def of(cls, replica: ReplicaInput, cluster: ClusterInput, settings: RenderSettings, spec: ReplicaSpec, findings: Findings) -> "Context":
        """Work out the names that all parts share."""
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
        """The facts about the cluster."""
        return self.cluster.facts

    @property
    def owner(self) -> Owner:
        """The owner in the annotations of the objects."""
        replica = self.replica
        return Owner("ModelReplica", replica.namespace, replica.name, replica.uid, replica.generation, (labels.REPLICA, self.workload))

    @property
    def picker(self) -> str:
        """The name of the endpoint picker and of all that belongs to it."""
        return names.picker_name(self.workload)

    @property
    def pool(self) -> str:
        """The name of the InferencePool."""
        return names.inference_pool_name(self.workload)

    @property
    def cache_claim(self) -> str:
        """The volume claim to mount; empty without a cache, or while it is not ready on this cluster."""
        return self.claim_of(self.spec.cache) if self.spec.cache else ""

    def claim_of(self, cache: str) -> str:
        """Give the volume claim of the model's cache or of an adapter's; empty while it is not ready on this cluster."""
        found = self.replica.cache_claim if cache == self.spec.cache else self.replica.adapter_claims.get(cache)
        known = self.cluster.cache_claims
        return found or known.get(f"{self.replica.namespace}/{cache}") or known.get(cache, "")

    def mount_of(self, cache: str) -> CacheMount:
        """Give how what a cache holds is mounted."""
        return self.replica.mounts.get(cache, _AS_USUAL)

    def engine_name(self, engine: Engine) -> str:
        """Name the workload of an engine."""
        return names.engine_name(self.replica.namespace, self.replica.name, engine.name, gang=engine.gang)

    def engine_annotations(self, engine: Engine) -> dict[str, str]:
        """Annotate an engine's workload with what its pods are made from: its own part of the spec."""
        trees = [tree for tree in self.replica.spec["engines"] if tree["name"] == engine.name]
        return _pods_from(pods_source(self.replica.spec, *trees))

    def picker_annotations(self) -> dict[str, str]:
        """Annotate the picker's workload with what its pods are made from: how and by which engines is served, and its own flags."""
        source = pods_source(self.replica.spec, *self.replica.spec["engines"])
        return _pods_from([*source, self.replica.spec.get("serving"), dict(self.replica.picker_flags)])

    def metadata(self, name: str) -> dict[str, str]:
        """Place a namespaced object."""
        return {"name": name, "namespace": self.namespace}


def _pods_from(source: list[Any]) -> dict[str, str]:
    return {labels.PODS_SOURCE: short_hash(source), labels.RENDERER: RENDERER_VERSION}
