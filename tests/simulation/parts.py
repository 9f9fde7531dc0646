"""The world outside of the control plane, and the activities that reach it.

Clusters, the control cluster, secrets, hubs, charts and clouds survive the workers.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from activities.caches.activities import CacheActivities
from activities.caches.revisions import RevisionActivities
from activities.clouds.accounts import CloudAccounts
from activities.cluster_objects.cluster_api import ClusterApi, ClusterPool
from activities.cluster_objects.ownership import owner_of
from activities.clusters.activities import ClusterActivities
from activities.clusters.facts import facts_of_settings
from activities.clusters.permissions import Usage
from activities.render.cache.artifact import SOURCES
from activities.render_settings import render_settings
from activities.routing.activities import RoutingActivities
from activities.routing.control_cluster import ControlCluster
from activities.secrets.store import SecretMissing
from activities.stack.activities import StackActivities
from activities.workloads.activities import WorkloadActivities
from api_types import labels
from api_types.errors import CredentialsInvalid, Unsupported
from api_types.messages.cluster_work import Connection
from api_types.settings import Settings
from fakes.gcp.calls.faults import EtagRace
from tests.simulation import kinds
from tests.simulation.charts import DEVICE_CLASS
from tests.simulation.cluster import ApiServer, ClusterClient, Mood
from tests.simulation.cluster_faults import ClusterFaults
from tests.simulation.fields import Json
from tests.simulation.helm import HelmInMemory, HelmOfWorker
from tests.simulation.reconciling import is_deleted, is_ready, key_of
from tests.simulation.secret_vault import ModelHub, Place, SecretVault
from tests.simulation.snapshot import Pool
from tests.simulation.store import ObjectKey

if TYPE_CHECKING:
    from tests.simulation.clouds import GoogleInMemory
    from tests.simulation.world import World

CONTROL = "control"
_CONTROL_SECRET = "control-kubeconfig"  # noqa: S105 - the name of a Secret
_KEY = "kubeconfig"
_TOKEN_SECONDS = 60.0
_CLOUDS = {"tiny": 0.05, "clouds": 1.0}
"""The share of worlds with a cloud, which makes a seed several times as expensive; else 0.2."""
_FORCE_AFTER = timedelta(seconds=600)


class PodView(NamedTuple):
    """A pod of an engine, as auditors see it; `ending`: the workload that made it is deleted."""

    cluster: str
    namespace: str
    name: str
    pool: str
    node: str
    owner: str
    devices: int
    ready: bool
    deleting: bool
    ending: bool


class NodeView(NamedTuple):
    """A node of a pool."""

    cluster: str
    pool: str
    name: str
    ready: bool
    schedulable: bool


class ObjectView(NamedTuple):
    """An object of the control plane at a `place`: a cluster, `control`, or a cloud.

    `owner` is the uid of its entity, empty if it names none; `cache` the label with the
    name of its ModelCache, empty if it has none.
    """

    place: str
    kind: str
    namespace: str
    name: str
    owner: str
    cache: str = ""


class RouteView(NamedTuple):
    """The route of a service on the control cluster, with the endpoints that it names."""

    namespace: str
    service: str
    endpoints: tuple[str, ...]


class VolumeView(NamedTuple):
    """The volume of a cache on a cluster; `complete`: a Job has filled it."""

    cluster: str
    namespace: str
    claim: str
    cache: str
    complete: bool


class SimPool(ClusterPool):
    """The clients of one worker."""

    def __init__(self, parts: "Parts", store: SecretVault) -> None:
        self._parts, self._store = parts, store
        self._open: dict[str, tuple[str, ClusterClient]] = {}
        # Set where the seed has clouds.
        self.accounts: CloudAccounts | None = None

    async def at(self, connection: Connection) -> ClusterApi:
        """See `ClusterPool`."""
        text = await self._text(connection)
        known = self._open.get(connection.cluster)
        if known is None or known[0] != text:
            name, _, token = text.partition(" ")
            known = self._open[connection.cluster] = (
                text,
                ClusterClient(self._parts.server_of(name), token),
            )
        return known[1]

    async def server(self, connection: Connection) -> ApiServer:
        """Return the API server itself, for Helm."""
        return self._parts.server_of((await self._text(connection)).partition(" ")[0])

    async def _text(self, connection: Connection) -> str:
        if connection.cloud is not None:
            if self.accounts is None:
                raise Unsupported(f"cluster {connection.cluster}: no clouds")
            server, _ = await self.accounts.endpoint(connection.cloud)
            token, _ = await self.accounts.token(connection.cloud, _TOKEN_SECONDS)
            return f"{server.removeprefix('https://')} {token}"
        try:
            return (
                await self._store.get(labels.SYSTEM_NAMESPACE, connection.name, connection.key)
            ).decode()
        except SecretMissing as error:
            raise CredentialsInvalid(
                f"cluster {connection.cluster}: {error}; put the kubeconfig there"
            ) from None


class Parts:
    """Everything outside. It survives workers."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.draw = world.source("parts")
        self.settings = Settings(
            secrets={"propagation": "all"},
            control_cluster={"name": _CONTROL_SECRET},
            workloads={},
            teardown={"force_after": 600},
        )
        self.vault = SecretVault()
        self.hub = ModelHub(world.latency, self._strikes, world.source("hub"))
        self.helm = HelmInMemory(world.latency, self._strikes, world.clock.seconds)
        self.servers: dict[str, ApiServer] = {}
        self._managed: dict[str, bool] = {}
        self._nowhere = self._new_server("nowhere")
        self._nowhere.mood = "refuses"
        self._control_ready = False
        self.servers[CONTROL] = self._new_server(CONTROL)
        self._add_system_nodes(self.servers[CONTROL])
        self.secrets[labels.SYSTEM_NAMESPACE, _CONTROL_SECRET] = {_KEY: f"{CONTROL} 1"}
        self.google = self._google() if self.draw.random() < _CLOUDS.get(world.fleet, 0.2) else None

    @property
    def secrets(self) -> dict[Place, dict[str, str]]:
        """The contents of the secret store."""
        return self.vault.contents

    # For scripts

    def add_cluster(self, name: str, *, managed: bool = False) -> bool:
        """Create a cluster and its kubeconfig; return whether the existing cluster is managed.

        A managed cluster is bare, for a stack that the control plane installs. On other clusters an
        administrator has installed the stack.
        """
        if name not in self.servers:
            server = self.servers[name] = self._new_server(name)
            self._managed[name] = managed
            self._add_system_nodes(server)
            for each in ("rwx", "standard"):
                manifest = {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "StorageClass",
                    "metadata": {"name": each},
                }
                server.create(
                    {**manifest, "provisioner": "sim", "allowVolumeExpansion": each == "rwx"}
                )
            if managed:
                server.behaviour.gateway_runs = server.behaviour.lws_runs = False
            else:
                server.serve(*kinds.STACK)
                server.create(DEVICE_CLASS)
                self._create_gateway(server, labels.GATEWAY_NAME, "envoy")
        self.secrets.setdefault(
            (labels.SYSTEM_NAMESPACE, f"{name}-kubeconfig"), {_KEY: f"{name} 1"}
        )
        return self._managed[name]

    def prepare_control(self, *, managed: bool = False) -> bool:
        """Prepare the control cluster; return whether it is managed, as in `add_cluster`."""
        if not self._control_ready:
            self._control_ready = True
            self._managed[CONTROL] = managed
            server = self.servers[CONTROL]
            if managed:
                server.behaviour.gateway_runs = False
            else:
                server.serve(*kinds.GATEWAY, *kinds.TRAEFIK)
                self._create_gateway(server, labels.CONTROL_GATEWAY_NAME, "traefik")
        return self._managed[CONTROL]

    def set_nodes(self, cluster: str, pool: str, count: int, gpus: int = 8) -> None:
        """Set the number of nodes in a pool of a cluster."""
        self.add_cluster(cluster)
        self.servers[cluster].set_nodes(pool, count, gpus)

    def annotate(self, cluster: str, kind: str, name: str, key: str, value: str) -> None:
        """Let an administrator annotate an object of a cluster by hand."""

        def change(item: Json) -> Json:
            metadata = item["metadata"]
            annotations = {**(metadata.get("annotations") or {}), key: value}
            return {**item, "metadata": {**metadata, "annotations": annotations}}

        self.servers[cluster].store.edit(ObjectKey("", kind, "", name), change)

    def lose_cluster(self, name: str, mood: Mood) -> None:
        """Take the API server of a cluster down permanently."""
        for server in self.servers.values():
            if server.name == name:
                server.mood = mood

    def drift(self, place: str) -> None:
        """Delete or edit a managed object by hand."""
        server = self.servers.get(place)
        ours = (
            []
            if server is None
            else [
                each
                for each in server.store.everything()
                if owner_of(each).uid and not is_deleted(each)
            ]
        )
        if server is not None and ours:
            self.world.note(
                "script", f"drift at {place}", server.drift(ours[self.draw.randrange(len(ours))])
            )

    def delete_disowned(self, place: str) -> None:
        """Delete the objects without our label by hand, as the messages about them
        advise.

        The control plane treats such an object as foreign: it neither changes nor
        deletes it, and pods of a workload stay with their volumes and GPUs.
        """
        if (server := self.servers.get(place)) is None:
            return
        for each in server.store.everything():
            notes = each["metadata"].get("annotations") or {}
            if labels.OWNER_UID in notes and not owner_of(each).uid and not is_deleted(each):
                key = key_of(each)
                server.store.delete(key)
                what = f"{key.kind} {key.namespace}/{key.name}"
                self.world.note("script", f"delete at {place}", what)

    # For auditors

    def pods(self) -> Iterator[PodView]:
        """Return the pods of engines on all clusters."""
        for server in self.servers.values():
            name = server.name
            for pod in server.store.find("", "Pod"):
                pool = pod["spec"].get("nodeSelector", {}).get(labels.POOL, "")
                if pool and pod.get("status", {}).get("phase") not in ("Failed", "Succeeded"):
                    workload = server.workload_of(pod)
                    yield PodView(
                        cluster=name,
                        namespace=pod["metadata"]["namespace"],
                        name=pod["metadata"]["name"],
                        pool=pool,
                        node=pod["spec"].get("nodeName", ""),
                        owner=owner_of(workload).uid if workload else "",
                        devices=server.kubelets.devices_of(pod),
                        ready=is_ready(pod),
                        deleting=is_deleted(pod),
                        ending=workload is not None and is_deleted(workload),
                    )

    def has_starting_pods(self) -> bool:
        """Return whether an engine starts or a download runs on any cluster."""
        return any(
            bool(pod["spec"].get("nodeName")) and not (is_ready(pod) or is_deleted(pod))
            for server in self.servers.values()
            for pod in server.store.find("", "Pod")
            if pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")
        )

    def owners_of_scaled(self) -> Iterator[str]:
        """Yield the uids of replicas with workloads that somebody scaled up by hand."""
        for server in self.servers.values():
            yield from server.owners_of_scaled()

    def nodes(self) -> Iterator[NodeView]:
        """Return the nodes of pools on all clusters."""
        for server in self.servers.values():
            name = server.name
            for node in server.store.find("", "Node"):
                pool = (node["metadata"].get("labels") or {}).get(labels.POOL, "")
                if pool:
                    schedulable = not node["spec"].get("unschedulable", False)
                    yield NodeView(
                        name, pool, node["metadata"]["name"], is_ready(node), schedulable
                    )

    def take_shrunk(self) -> set[Pool]:
        """Return the pools that have lost nodes since the last call."""
        found = {(each.name, pool) for each in self.servers.values() for pool in each.shrunk}
        for server in self.servers.values():
            server.shrunk.clear()
        return found

    def reachable(self, cluster: str) -> bool:
        """Return whether the API server of a cluster answers."""
        found = [each for each in self.servers.values() if each.name == cluster]
        return any(each.mood == "answers" for each in found)

    def objects(self) -> Iterator[ObjectView]:
        """Return all objects of the control plane that exist outside."""
        for server in self.servers.values():
            name = server.name
            for item in server.store.everything():
                metadata = item["metadata"]
                where = metadata.get("namespace", ""), metadata["name"]
                marks = metadata.get("labels") or {}
                value = marks.get(labels.MODEL_CACHE)
                cache = f"{labels.MODEL_CACHE}={value}" if value else ""
                for uid in _owners(item):
                    yield ObjectView(name, item["kind"], *where, uid, cache)
                if item["kind"] == "Secret" and marks.get("owner") == "helm":
                    owner = self._owner_of_stack(server)
                    yield ObjectView(name, "HelmRelease", where[0], marks["name"], owner)

        for each in self.google.objects() if self.google else ():
            if each.name.endswith(f"/{EtagRace.member}"):
                continue
            kind = each.name.rsplit("/", 2)[-2]
            yield ObjectView("gke", kind, "", each.name, each.owner)

    def _owner_of_stack(self, server: ApiServer) -> str:
        """Return the uid of the entity that has installed the releases of a cluster."""
        marked = server.store.get(ObjectKey("", "Namespace", "", labels.SYSTEM_NAMESPACE))
        classes = server.store.find("gateway.networking.k8s.io", "GatewayClass")
        found = (owner_of(each).uid for each in (marked, *classes) if each is not None)
        return next(filter(None, found), "")

    def routes(self) -> Iterator[RouteView]:
        """Return the routes of services."""
        for route in self.servers[CONTROL].store.find("gateway.networking.k8s.io", "HTTPRoute"):
            owner = owner_of(route)
            if owner.kind == "ModelService":
                backends = [
                    each
                    for rule in route["spec"].get("rules", ())
                    for each in rule.get("backendRefs", ())
                ]
                endpoints = (
                    self._endpoint_of(owner.namespace, each["name"])
                    for each in backends
                    if each.get("weight", 1)
                )
                yield RouteView(owner.namespace, owner.name, tuple(dict.fromkeys(endpoints)))

    def volumes(self) -> Iterator[VolumeView]:
        """Return the volumes of caches on all clusters."""
        for server in self.servers.values():
            name = server.name
            for claim in server.store.find("", "PersistentVolumeClaim"):
                owner = owner_of(claim)
                if owner.kind == "ModelCache":
                    metadata = claim["metadata"]
                    complete = metadata["uid"] in server.kubelets.filled
                    yield VolumeView(
                        name, metadata["namespace"], metadata["name"], owner.uid, complete
                    )

    def _endpoint_of(self, namespace: str, service: str) -> str:
        for item in self.servers[CONTROL].store.find("", "Service", namespace):
            if item["metadata"]["name"] == service:
                return owner_of(item).name
        return service

    def _google(self) -> "GoogleInMemory":
        # The libraries of clouds take seconds to import, and most seeds have no cloud.
        from tests.simulation import clouds  # noqa: PLC0415

        self.secrets[labels.SYSTEM_NAMESPACE, clouds.SECRET] = {"credentials": clouds.CREDENTIAL}
        return clouds.GoogleInMemory(self)

    def cloud_credentials(self) -> list[Place]:
        """Return the places of the credentials of clouds in the secret store."""
        return [self.google.secret] if self.google else []

    def add_cloud_cluster(self, host: str, cluster: str) -> None:
        """Add the API server of a cluster that a cloud has created."""
        server = self.servers[host] = self._new_server(cluster)
        server.behaviour.gateway_runs = server.behaviour.lws_runs = False

    def remove_cloud_cluster(self, host: str) -> None:
        """Remove a cluster and everything on it."""
        self.servers.pop(host).stop()

    # For workers

    def new_worker(self) -> Sequence[Callable[..., Any]]:
        """Return the activities of one worker process; their memory dies with it."""
        settings, render = self.settings, render_settings(self.settings)
        pool = SimPool(self, self.vault)
        helm = HelmOfWorker(pool, self.helm)
        control = ControlCluster(pool, settings.control_cluster)
        clusters = ClusterActivities(
            pool,
            settings=facts_of_settings(settings, "simulated"),
            toleration_keys=settings.workloads.toleration_keys,
            store=self.vault,
            usage=Usage(force_delete=True),
            gateway_answers=self._gateway_answers,
        )
        workloads = WorkloadActivities(
            pool, self.vault, render, _FORCE_AFTER, settings.workloads.adopt_renderer, "simulated"
        )
        caches = CacheActivities(pool, self.vault, render, _FORCE_AFTER)
        revisions = RevisionActivities(self.vault, dict.fromkeys(SOURCES, self.hub))
        routing = RoutingActivities(control)
        stack = StackActivities(pool, helm, settings.stack, control.api, control.connection)
        clouds = self.google.activities(pool, helm, self.vault) if self.google else []
        return [
            *clouds,
            clusters.connect_cluster,
            clusters.await_worker,
            clusters.await_connection,
            clusters.watch_cluster,
            clusters.empty_cluster,
            workloads.apply_replica,
            workloads.await_copies,
            workloads.prune_replica,
            workloads.teardown_replica_step,
            caches.apply_cache,
            caches.delete_cache_objects,
            caches.await_credential,
            revisions.resolve_revision,
            routing.connect_gateway,
            routing.watch_gateway,
            routing.apply_endpoint_backend,
            routing.remove_endpoint_backend,
            routing.apply_service_route,
            routing.remove_service_route,
            stack.preflight_stack,
            stack.apply_stack_objects,
            stack.apply_chart_crds,
            stack.helm_ensure,
            stack.stack_readiness,
            stack.restart_ai_gateway,
            stack.await_no_routes,
            stack.remove_stack_objects,
            stack.helm_uninstall,
            stack.purge_definitions,
            stack.remove_finalizer,
            stack.list_load_balancers,
            stack.run_install_step,
        ]

    def server_of(self, name: str) -> ApiServer:
        """Return the API server that a kubeconfig names."""
        if name == CONTROL:
            self.prepare_control()
        return self.servers.get(name, self._nowhere)

    # Inside

    async def _gateway_answers(self, url: str) -> bool:
        """Return whether a cluster that is not cut off has a gateway at a URL."""
        return any(
            address["value"] in url
            for server in self.servers.values()
            if server.mood != "silent"
            for gateway in server.store.find("gateway.networking.k8s.io", "Gateway")
            for address in gateway.get("status", {}).get("addresses", ())
        )

    def _new_server(self, name: str) -> ApiServer:
        server = ApiServer(
            name, self.world.source(f"cluster/{name}"), self._strikes, self.world.latency
        )
        server.behaviour.staged = self._staged
        return server

    def _strikes(self, name: str, subject: str) -> bool:
        return self.world.faults.strikes(name, subject)

    def _staged(self, pod: Json) -> str:
        """Return the revision that a download put into its volume."""
        found = {
            each["name"]: each.get("value", "")
            for container in pod["spec"]["containers"]
            for each in container.get("env", ())
        }
        origin = next(
            (
                found[name]
                for name in ("MODELPLANE_REPO", "MODELPLANE_IMAGE", "MODELPLANE_BUCKET")
                if name in found
            ),
            "",
        )
        source = (
            "OCI" if "MODELPLANE_IMAGE" in found or "MODELPLANE_BUCKET" in found else "HuggingFace"
        )
        return found.get("MODELPLANE_REVISION") or self.hub.commit(origin, source)

    def _add_system_nodes(self, server: ApiServer) -> None:
        for number in range(2):
            server.add_node(f"system-{number}", "", 0)

    def _create_gateway(self, server: ApiServer, name: str, gateway_class: str) -> None:
        api = "gateway.networking.k8s.io/v1"
        server.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": labels.SYSTEM_NAMESPACE}}
        )
        spec = {"controllerName": f"sim/{gateway_class}"}
        server.create(
            {
                "apiVersion": api,
                "kind": "GatewayClass",
                "metadata": {"name": gateway_class},
                "spec": spec,
            }
        )
        metadata = {
            "name": name,
            "namespace": labels.SYSTEM_NAMESPACE,
            "annotations": {labels.MIDDLEWARES: "enabled"},
        }
        server.create(
            {
                "apiVersion": api,
                "kind": "Gateway",
                "metadata": metadata,
                "spec": {"gatewayClassName": gateway_class},
            }
        )


def _owners(item: Json) -> list[str]:
    """Return the uids of the entities that own an object; all users own a shared copy."""
    notes = item["metadata"].get("annotations") or {}
    users = [uid for name, uid in notes.items() if name.startswith(labels.USER_PREFIX)]
    uid = owner_of(item).uid
    return users or ([uid] if uid else [])


def make_parts(world: "World") -> Parts:
    """Build the outside of a world, with its faults."""
    parts = Parts(world)
    ClusterFaults(parts).start()
    return parts
