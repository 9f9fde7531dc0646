"""The users and operators of a simulated fleet, drawn from a seed.

A seed draws a fleet, the weights of the actions, and the pauses between them. A script
ends before its world does: the users repair all damage, and then only watch.
"""

import asyncio
import copy
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode

from api_types import labels, names
from api_types.messages.signals import receiver_of, signals_of
from api_types.taints import with_taint, without_taint
from tests.simulation import manifests
from tests.simulation.manifests import Json

if TYPE_CHECKING:
    from tests.simulation.world import World

Address = tuple[str, str, str]
"""Kind, namespace and name of an object."""

ENDS_AT = 0.9
"""The share of the time with faults after which no new action begins."""
FIRST_SECONDS = 120.0


@dataclass(frozen=True)
class Names:
    """The names that the users of a fleet choose from.

    `churn`: users act all the time, on caches, services, quotas and deployments with
    priorities.
    """

    clusters: tuple[str, ...] = ("eu-1", "us-1", "eu-2", "us-2")
    classes: tuple[str, ...] = tuple(manifests.DEVICES)
    namespaces: tuple[str, ...] = manifests.NAMESPACES
    models: tuple[str, ...] = ("chat", "code", "embed", "vision")
    caches: tuple[str, ...] = ("llama", "qwen")
    services: tuple[str, ...] = ("talk", "search")
    endpoints: tuple[str, ...] = ("burst", "spare")
    churn: bool = False


FLEETS = {
    "small": Names(),
    "tiny": Names(
        ("eu-1", "us-1"), ("h100-8x",), ("ml",), ("chat", "code"), ("llama",), ("talk",), ("burst",)
    ),
    "churn": Names(clusters=("eu-1", "us-1"), classes=("h100-8x",), churn=True),
    # As `tiny`, and always with a cluster at a cloud.
    "clouds": Names(("eu-1",), ("h100-8x",), ("ml",), ("chat",), ("llama",), ("talk",), ("burst",)),
}
TENANTS = ("alice", "bob", "ci")
KEDA = "system:serviceaccount:keda:keda-operator"
UNREADABLE: tuple[Any, ...] = (17, "text", [1, 2], {"uid": {}, "requestId": 5}, "x" * 10_000)
"""Arguments that no message reads."""
ADVICE = re.compile(r"kubectl annotate --overwrite namespace (\S+) (\S+)=([0-9a-f-]+)")
"""The command that hands the stack of an earlier cluster to the next cluster of that name."""
_POLLS = 15
STARTED_AGAIN = ("fleetscheduler", "endpointdirectory", "stackupgrades", "modelreplica", "cloud")
"""Workflows that users do not apply, because other workflows start them again."""
DELETION_ORDER = (
    "ModelService",
    "ModelEndpoint",
    "ModelDeployment",
    "ModelCache",
    "InferenceGateway",
    "InferenceCluster",
    "InferenceClass",
)
APPLY_ORDER = tuple(reversed(DELETION_ORDER))


@dataclass
class People:
    """All users of one world, and the documents that they want to exist.

    `wanted` are the last documents that were applied and not deleted. `earlier` keeps
    templates to roll back to. `touched`: workflows that an operator terminated, and
    clusters whose deletion was forced. `applied`: the last document of each workflow.
    """

    world: "World"
    draw: Random
    names: Names
    wanted: dict[Address, Json] = field(default_factory=dict)
    earlier: dict[Address, list[Json]] = field(default_factory=dict)
    touched: dict[str, Json | None] = field(default_factory=dict)
    applied: dict[str, Json] = field(default_factory=dict)
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)
    requests: int = 0

    # The fleet

    async def begin(self) -> None:
        """Create the first fleet: classes, clusters, mostly a gateway, and a policy."""
        self._plant_secrets()
        for name in self.names.classes:
            await self.apply(manifests.a_class(name, price=self.draw.choice(("", "1.5", "20"))))
        for name in self.names.clusters[: self.draw.randint(1, len(self.names.clusters))]:
            await self.apply(self._a_cluster(name))
        if self.world.parts.google:
            await self.apply(manifests.a_cloud_class())
            await self.apply(manifests.a_cloud_cluster(self.draw))
        if self.draw.random() < 0.9:
            managed = self.draw.random() < 0.3
            managed = self.world.parts.prepare_control(managed=managed)
            await self.apply(manifests.a_gateway(managed=managed))
        if self.draw.random() < 0.8:
            await self.set_policy()

    def _a_cluster(self, name: str) -> Json:
        pools = [
            manifests.a_pool(self.draw, each, self.names.classes)
            for each in ("a", "b")[: self.draw.randint(1, 2)]
        ]
        managed = self.draw.random() < 0.3
        managed = self.world.parts.add_cluster(name, managed=managed)
        self._resize(name, pools)
        return manifests.a_cluster(name, pools, region=name[:2], managed=managed)

    def _resize(self, cluster: str, pools: Iterable[Json]) -> None:
        for pool in pools:
            if pool["className"] == manifests.CLOUD_CLASS:
                # The cloud sets the nodes of this pool.
                continue
            gpus, _ = manifests.DEVICES[pool["className"]]
            self.world.parts.set_nodes(cluster, pool["name"], pool["nodeCount"], gpus)

    def _plant_secrets(self) -> None:
        secrets = self.world.parts.secrets
        for namespace in self.names.namespaces:
            secrets[namespace, "hub"] = {"token": self._a_secret()}
            secrets[namespace, "bucket"] = {"credentials": self._a_secret()}

    def _a_secret(self) -> str:
        return f"planted-{self.draw.getrandbits(64):016x}"

    # Requests

    async def apply(self, document: Json) -> None:
        """Apply a document, and expect its object from now on."""
        address = address_of(document)
        before = self.wanted.get(address)
        if before is not None and before != document:
            self.earlier.setdefault(address, []).append(before)
        self.wanted[address] = copy.deepcopy(document)
        self.applied[names.workflow_id(*address)] = self.wanted[address]
        await self.insist(lambda: self.world.apply(copy.deepcopy(document)))

    async def signal(self, address: Address, signal: str, **payload: Any) -> None:
        """Send a signal of a user or a program."""
        self.requests += 1
        body = {"requestId": f"request-{self.requests}", "by": self.draw.choice(TENANTS), **payload}
        await self.insist(lambda: self.world.signal(*address, signal, body))

    async def delete(self, address: Address, **how: Any) -> None:
        """Delete an object."""
        self.wanted.pop(address, None)
        await self.signal(address, "delete", **how)

    async def set_policy(self) -> None:
        """Write another policy of the fleet."""
        body = {"by": self.draw.choice(TENANTS), "policy": manifests.a_policy(self.draw)}
        address = ("FleetScheduler", "", "default")
        await self.insist(lambda: self.world.signal(*address, "set_policy", body))

    async def insist(self, call: Callable[[], Awaitable[Any]]) -> None:
        """Repeat a request until Temporal accepts it; ignore requests to a workflow
        that does not run.
        """
        try:
            await self.world.insist(call)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            self.world.note("void", "request", error.message)

    async def pause(self, *choices: float) -> None:
        """Wait for a drawn time, at most until users stop acting."""
        left = self.world.faults.last - self.world.clock.seconds()
        await asyncio.sleep(max(0.0, min(self.draw.choice(choices), left)))

    @property
    def are_done(self) -> bool:
        """Return whether it is too late to begin an action."""
        return self.world.clock.seconds() >= self.world.faults.last

    # Choosing

    def one(self, kind: str) -> Address | None:
        """Choose an object of a kind that is wanted."""
        found = [address for address in self.wanted if address[0] == kind]
        return self.draw.choice(found) if found else None

    def named(self, kind: str, namespace: str) -> list[str]:
        """Name the objects of a kind that are wanted in a namespace."""
        return [name for found, where, name in self.wanted if (found, where) == (kind, namespace)]

    def running(self, *prefixes: str) -> list[str]:
        """Name the workflows that run."""
        return [
            workflow_id
            for workflow_id, execution in self.world.server.executions.items()
            if execution.run.is_open and workflow_id.startswith(prefixes)
        ]

    # Models

    async def apply_deployment(self) -> None:
        """Create a deployment, or change all of one."""
        namespace = self.draw.choice(self.names.namespaces)
        name = self.draw.choice(self.names.models)
        caches = self.named("ModelCache", namespace)
        await self.apply(manifests.a_deployment(self.draw, namespace, name, caches))

    async def change_template(self) -> None:
        """Change the image of a deployment."""
        if address := self.one("ModelDeployment"):
            image = f"registry.example/engine:{self.draw.randrange(1000)}"
            await self.apply(manifests.with_image(self.wanted[address], image))

    async def change_rollout(self) -> None:
        """Change how a deployment rolls out, or pause it."""
        if address := self.one("ModelDeployment"):
            document = copy.deepcopy(self.wanted[address])
            rollout = manifests.a_rollout(self.draw)
            document["spec"]["rollout"] = {**rollout, "paused": self.draw.random() < 0.2}
            await self.apply(document)

    async def roll_back(self) -> None:
        """Apply an earlier document of a deployment again."""
        address = self.one("ModelDeployment")
        if address and self.earlier.get(address):
            await self.apply(self.draw.choice(self.earlier[address]))

    async def scale(self) -> None:
        """Scale a deployment, mostly within the capacity of the fleet."""
        if address := self.one("ModelDeployment"):
            count = self.draw.choice((0, 0, 1, 2, 3, 5, 12))
            await self.signal(address, "scale", replicas=count)

    async def autoscale(self) -> None:
        """Let an autoscaler set the count again and again for a while."""
        if address := self.one("ModelDeployment"):
            for _ in range(self.draw.randint(3, 12)):
                await self.signal(address, "scale", by=KEDA, replicas=self.draw.randint(0, 4))
                await self.pause(5, 15, 30, 300)

    async def write_at_once(self) -> None:
        """Let several users change one deployment at the same moment."""
        if address := self.one("ModelDeployment"):
            counts = [self.draw.randint(0, 4) for _ in range(3)]
            image = manifests.with_image(self.wanted[address], f"registry.example/engine:{counts}")
            await asyncio.gather(
                self.signal(address, "scale", by="alice", replicas=counts[0]),
                self.signal(address, "scale", by="bob", replicas=counts[1]),
                self.replace(image),
                self.change_template(),
            )

    async def replace(self, document: Json) -> None:
        """Send an update to an object, which may be rejected."""
        try:
            await self.world.replace(copy.deepcopy(document))
        except (RPCError, WorkflowUpdateFailedError) as error:
            self.world.note("void", "replace", str(error.__cause__ or error))
        else:
            self.wanted[address_of(document)] = document

    async def delete_deployment(self) -> None:
        """Delete a deployment."""
        if address := self.one("ModelDeployment"):
            await self.delete(address)

    async def create_again(self) -> None:
        """Delete an object and create it again at once."""
        kind = self.draw.choice(
            ("ModelDeployment", "ModelCache", "ModelService", "InferenceCluster")
        )
        if address := self.one(kind):
            document = self.wanted[address]
            await self.delete(address)
            await self.pause(0, 0, 1, 30)
            await self.apply(document)
            self._again(document)

    def _again(self, document: Json) -> None:
        """Apply a document again once the earlier object with this name is gone."""
        self.start(self._apply_when_gone(document))

    async def _apply_when_gone(self, document: Json) -> None:
        address = address_of(document)
        workflow_id = names.workflow_id(*address)
        for _ in range(200):
            await self.pause(60)
            if self.wanted.get(address) != document or self.are_done:
                return
            seen = self.world.peek(workflow_id, "describe") if self.running(workflow_id) else None
            if seen is None or "deletionTimestamp" not in seen["metadata"]:
                await self.apply(document)
                if seen is not None:
                    return

    # Caches, services, endpoints

    async def apply_cache(self) -> None:
        """Create a cache, or change all of one."""
        namespace = self.draw.choice(self.names.namespaces)
        name = self.draw.choice(self.names.caches)
        await self.apply(manifests.a_cache(self.draw, namespace, name))

    async def refresh_cache(self) -> None:
        """Make a cache look for a newer revision."""
        if address := self.one("ModelCache"):
            document = copy.deepcopy(self.wanted[address])
            stamp = str(self.draw.randrange(1000))
            document["metadata"].setdefault("annotations", {})[labels.REFRESH] = stamp
            await self.apply(document)

    async def delete_cache(self) -> None:
        """Delete a cache, also one in use."""
        if address := self.one("ModelCache"):
            await self.delete(address)

    async def apply_service(self) -> None:
        """Create a service, or change all of one."""
        namespace = self.draw.choice(self.names.namespaces)
        name = self.draw.choice(self.names.services)
        providers = self.named("ModelEndpoint", namespace)
        await self.apply(
            manifests.a_service(self.draw, namespace, name, self.names.models, providers)
        )

    async def delete_service(self) -> None:
        """Delete a service."""
        if address := self.one("ModelService"):
            await self.delete(address)

    async def apply_endpoint(self) -> None:
        """Create or change an external endpoint."""
        namespace = self.draw.choice(self.names.namespaces)
        name = self.draw.choice(self.names.endpoints)
        await self.apply(manifests.an_endpoint(self.draw, namespace, name))

    async def delete_endpoint(self) -> None:
        """Delete an external endpoint."""
        if address := self.one("ModelEndpoint"):
            await self.delete(address)

    async def change_gateway(self) -> None:
        """Delete the gateway, or create it."""
        if address := self.one("InferenceGateway"):
            await self.delete(address)
        managed = self.world.parts.prepare_control(managed=self.draw.random() < 0.3)
        document = manifests.a_gateway(managed=managed)
        await self.apply(document)
        self._again(document)

    # Clusters

    async def apply_cluster(self) -> None:
        """Create a cluster, or give one other pools."""
        name = self.draw.choice(self.names.clusters)
        address = ("InferenceCluster", "", name)
        document = self._a_cluster(name)
        if before := self.wanted.get(address):
            document["metadata"] = {**document["metadata"], **before["metadata"]}
        await self.apply(document)

    async def resize_pool(self) -> None:
        """Change the nodes of a pool; its manifest follows."""
        if address := self.one("InferenceCluster"):
            document = copy.deepcopy(self.wanted[address])
            pool = self.draw.choice(document["spec"]["nodePools"])
            pool["nodeCount"] = self.draw.randint(0, 5)
            self._resize(address[2], [pool])
            await self.apply(document)

    async def lose_nodes(self) -> None:
        """Lose nodes of a pool without notice, and get them back later."""
        if address := self.one("InferenceCluster"):
            pool = self.draw.choice(self.wanted[address]["spec"]["nodePools"])
            fewer = {**pool, "nodeCount": self.draw.randint(0, pool["nodeCount"])}
            self._resize(address[2], [fewer])
            await self.pause(60, 1200, 7200)
            if address in self.wanted:
                self._resize(address[2], self.wanted[address]["spec"]["nodePools"])

    async def taint_cluster(self) -> None:
        """Drain a cluster, or reserve it, and later take that back."""
        if address := self.one("InferenceCluster"):
            before = self.wanted[address]
            effect = self.draw.choice(("NoSchedule", "NoExecute"))
            reserved = {"key": "example.com/reserved", "effect": effect}
            tainted = {**before["spec"], "taints": [reserved]}
            spec = self.draw.choice((with_taint(before["spec"]), tainted))
            await self.apply({**before, "spec": spec})
            await self.pause(60, 1800, 3 * 3600)
            if address in self.wanted:
                now = self.wanted[address]
                freed = dict(without_taint(now["spec"]))
                freed.pop("taints", None)
                await self.apply({**now, "spec": freed})

    async def delete_cluster(self) -> None:
        """Delete a cluster, sometimes with its replicas moved elsewhere, sometimes by force."""
        if address := self.one("InferenceCluster"):
            await self.delete(address, evict=self.draw.random() < 0.7)
            if self.draw.random() < 0.2:
                await self.pause(1, 600)
                await self.force(address)

    async def change_class(self) -> None:
        """Delete a class, or write it with another price."""
        name = self.draw.choice(self.names.classes)
        address = ("InferenceClass", "", name)
        if address in self.wanted and self.draw.random() < 0.4:
            await self.delete(address)
        else:
            await self.apply(manifests.a_class(name, price=self.draw.choice(("", "3", "9.25"))))

    # Operators

    async def force(self, address: Address) -> None:
        """Skip a step of a teardown, or all of it.

        The next cluster of the name may find the stack that stayed behind.
        """
        if address[0] == "InferenceCluster":
            self.touched.setdefault(names.workflow_id(*address), None)
        await self.signal(address, "force", scope=self.draw.choice(("step", "all")), reason="drawn")

    async def force_deletion(self) -> None:
        """Delete a deployment or a cluster, and force the deletion if it takes too
        long.
        """
        kind = self.draw.choice(
            ("ModelDeployment", "InferenceCluster", "ModelCache", "ModelService")
        )
        if address := self.one(kind):
            await self.delete(address)
            await self.pause(0, 5, 60, 600)
            await self.force(address)

    async def retry_now(self) -> None:
        """Make an object retry at once."""
        found = [address for address in self.wanted if address[0] != "InferenceClass"]
        if found:
            await self.signal(self.draw.choice(found), "retry_now")

    async def cancel(self) -> None:
        """Request the cancellation of a workflow, which is refused."""
        if found := self.running(""):
            handle = self.world.client.get_workflow_handle(self.draw.choice(found))
            await self.insist(handle.cancel)

    async def terminate(self) -> None:
        """Terminate a workflow, and apply its object again after some time.

        The workflow of a cloud stays terminated if its InferenceCluster was terminated
        before.
        """
        if found := [each for each in self.running("") if not self._is_orphaned(each)]:
            workflow_id = self.draw.choice(found)
            # A workflow without a worker does not describe itself.
            self.touched[workflow_id] = self._document_of(workflow_id) or self.applied.get(
                workflow_id
            )
            await self.insist(lambda: self.world.terminate(workflow_id, "drawn"))
            await self.pause(0, 60, 1800)
            await self._apply_again(workflow_id)

    async def reset(self, workflow_id: str, share: float) -> None:
        """Reset a workflow to an earlier task, so that it keeps a share of its tasks."""
        recorded = len(self.world.server.find(workflow_id).recorded)
        if recorded and self.world.clock.has_caught_up():
            kept = int(share * (recorded - 1))
            self.world.note("script", "reset", f"{workflow_id} to task {kept + 1} of {recorded}")
            await self.insist(lambda: self.world.reset(workflow_id, kept))
            kind, _, name = workflow_id.partition("/")
            address = ("InferenceCluster", "", name)
            if kind == "inferencecluster":
                # Its first task gives it a uid, so the stack belongs to another owner.
                await self._heed(address)

    def _is_orphaned(self, workflow_id: str) -> bool:
        cluster, uid = names.cluster_of_cloud(workflow_id)
        if not cluster:
            return False
        owner = self.world.peek(names.workflow_id("InferenceCluster", "", cluster), "describe")
        return owner is None or owner["metadata"]["uid"] != uid

    def _document_of(self, workflow_id: str) -> Json | None:
        seen = self.world.peek(workflow_id, "describe")
        if seen is None or "spec" not in seen:
            return None
        metadata = {
            key: seen["metadata"][key]
            for key in ("name", "namespace", "labels", "annotations")
            if seen["metadata"].get(key)
        }
        return {
            "apiVersion": manifests.API_VERSION,
            "kind": seen["kind"],
            "metadata": metadata,
            "spec": seen["spec"],
        }

    async def _apply_again(self, workflow_id: str) -> None:
        """Apply the object of a terminated workflow; delete it if it is not wanted any
        more, after it has taken over what the terminated one had made.
        """
        if workflow_id.startswith(STARTED_AGAIN):
            return
        wanted = self._wanted_as(workflow_id)
        document = wanted or self.touched.get(workflow_id)
        runs = bool(self.running(workflow_id))
        if document is None or (runs and wanted is None):
            return
        address = address_of(document)
        if not runs:
            await self.apply(document)
        if address[0] == "InferenceCluster":
            await self._heed(address)
        if wanted is None:
            # These kinds remove the objects of a terminated workflow also before a first pass.
            is_hasty = self.world.source(f"haste/{workflow_id}").random() < 0.5
            if not (is_hasty and address[0] in _REMOVE_UNKNOWN):
                await self._observed(workflow_id)
            await self.delete(address)

    async def _observed(self, workflow_id: str) -> None:
        """Wait until an object has acted on its spec, for some minutes at most."""
        for _ in range(_POLLS):
            await asyncio.sleep(60)
            seen = self.world.peek(workflow_id, "describe") or {}
            observed = seen.get("status", {}).get("observedGeneration")
            if observed and observed == seen["metadata"].get("generation"):
                return

    def _wanted_as(self, workflow_id: str) -> Json | None:
        found = (
            self.wanted[each] for each in self.wanted if names.workflow_id(*each) == workflow_id
        )
        return next(found, None)

    async def _heed(self, address: Address) -> None:
        """Follow the advice of the condition that an earlier cluster owns the stack."""
        for _ in range(_POLLS):
            await asyncio.sleep(60)
            seen = self.world.peek(names.workflow_id(*address), "describe") or {}
            status = seen.get("status", {})
            if status.get("phase") == "Ready":
                return
            advice = ADVICE.search(str(status.get("conditions")))
            if advice:
                place, key, value = advice.groups()
                self.world.note("script", "heed advice", advice.group())
                self.world.parts.annotate(address[2], "Namespace", place, key, value)
                await self.signal(address, "retry_now")
                return

    async def send_unreadable(self) -> None:
        """Send a workflow an argument that it cannot read."""
        if found := self.running(""):
            workflow_id = self.draw.choice(found)
            kind = self.world.server.executions[workflow_id].run.kind
            signal = self.draw.choice(sorted(signals_of(receiver_of(kind))))
            handle = self.world.client.get_workflow_handle(workflow_id)
            payload = self.draw.choice(UNREADABLE)
            self.world.note("script", f"unreadable {signal}", workflow_id)
            await self.insist(lambda: handle.signal(signal, payload))

    async def rotate_secret(self) -> None:
        """Write another value of a secret, or lose it for a while."""
        secrets = self.world.parts.secrets
        places = sorted(each for each in secrets if each[0] in self.names.namespaces)
        if not places:
            # A concurrent action has removed the only one, and writes it again later.
            return
        place = self.draw.choice(places)
        key = next(iter(secrets[place]))
        if self.draw.random() < 0.3:
            del secrets[place]
            await self.pause(60, 3600)
        secrets[place] = {key: self._a_secret()}

    async def drift(self) -> None:
        """Edit or delete a managed object by hand."""
        places = [*(name for kind, _, name in self.wanted if kind == "InferenceCluster"), "control"]
        place = self.draw.choice(places)
        self.world.parts.drift(place)
        left = self.world.faults.last - self.world.clock.seconds()
        await asyncio.sleep(max(0.0, min(_DISOWNED_SECONDS, left)))
        self.world.parts.delete_disowned(place)

    # The end

    async def repair(self) -> None:
        """Apply terminated objects again, and end temporary measures."""
        for address in sorted(self.wanted, key=lambda each: (APPLY_ORDER.index(each[0]), each)):
            if not self.running(names.workflow_id(*address)):
                await self.apply(self.wanted[address])
        for workflow_id in list(self.touched):
            await self._apply_again(workflow_id)
        for workflow_id in self.running("inferencecluster/"):
            address = ("InferenceCluster", "", workflow_id.partition("/")[2])
            if address not in self.wanted:
                await self.delete(address, evict=True)

    async def lose_a_cluster(self) -> None:
        """Lose a cluster permanently, and change deployments and services afterwards."""
        if address := self.one("InferenceCluster"):
            await asyncio.sleep(max(0.0, self.world.faults.last - self.world.clock.seconds()))
            self.world.note("script", "lose a cluster", address[2])
            self.world.parts.lose_cluster(address[2], self.draw.choice(("silent", "refuses")))
            await asyncio.sleep(self.draw.choice((0, 600)))
            await self.apply_deployment()
            await self.apply_service()
            await self.delete_deployment()

    async def delete_everything(self) -> None:
        """Delete every object, in an order that lets each end."""
        for address in sorted(self.wanted, key=lambda each: (DELETION_ORDER.index(each[0]), each)):
            evict = {"evict": True} if address[0] == "InferenceCluster" else {}
            await self.delete(address, **evict)

    async def all_have_acted(self) -> None:
        """Wait until no user acts any more."""
        while pending := [task for task in self.tasks if not task.done()]:
            await asyncio.gather(*pending)

    def start(self, acting: Awaitable[None]) -> None:
        """Run an action concurrently with the others."""

        async def act() -> None:
            await acting

        self.tasks.append(self.world.spawn(act(), "script"))


ACTIONS: dict[str, tuple[float, Callable[[People], Awaitable[None]]]] = {
    "apply a deployment": (8, People.apply_deployment),
    "change a template": (5, People.change_template),
    "change a rollout": (2, People.change_rollout),
    "roll back": (2, People.roll_back),
    "scale": (8, People.scale),
    "autoscale": (2, People.autoscale),
    "write at once": (2, People.write_at_once),
    "delete a deployment": (4, People.delete_deployment),
    "create again": (2, People.create_again),
    "apply a cache": (4, People.apply_cache),
    "refresh a cache": (2, People.refresh_cache),
    "delete a cache": (1, People.delete_cache),
    "apply a service": (4, People.apply_service),
    "delete a service": (1, People.delete_service),
    "apply an endpoint": (3, People.apply_endpoint),
    "delete an endpoint": (1, People.delete_endpoint),
    "change the gateway": (0.5, People.change_gateway),
    "apply a cluster": (2, People.apply_cluster),
    "resize a pool": (3, People.resize_pool),
    "lose nodes": (2, People.lose_nodes),
    "taint a cluster": (2, People.taint_cluster),
    "delete a cluster": (1, People.delete_cluster),
    "change a class": (1, People.change_class),
    "set the policy": (2, People.set_policy),
    "force a deletion": (1, People.force_deletion),
    "retry now": (1, People.retry_now),
    "cancel": (1, People.cancel),
    "terminate": (1, People.terminate),
    "send an unreadable message": (2, People.send_unreadable),
    "rotate a secret": (1, People.rotate_secret),
    "drift": (2, People.drift),
}
"""The actions of people, and how often they occur in relation to each other."""
_CHURN = {
    "apply a deployment": 6,
    "scale": 6,
    "delete a deployment": 3,
    "create again": 2,
    "apply a cache": 4,
    "refresh a cache": 3,
    "delete a cache": 2,
    "apply a service": 3,
    "delete a service": 2,
    "set the policy": 4,
}
"""The actions of a fleet with churn, and how often they occur in relation to each other."""
_CHURN_PAUSE_SECONDS = 180.0
_FACTORS = (0.0, 0.3, 1.0, 1.0, 3.0)
"""Factors of the frequency of each action, so that seeds differ in their subjects."""
_IN_A_RUN = (4, 12, 40)
"""The minimum number of actions of a seed, however short it is."""
_DISOWNED_SECONDS = 1800.0
"""The time after which users follow the advice to delete an object that lost its label.
"""


_REMOVE_UNKNOWN = ("ModelService", "ModelEndpoint", "ModelCache", "InferenceGateway")
_RESETTING = 0.3
"""The share of worlds in which an operator resets workflows."""
_RESETS = (1, 8)


async def reset_now_and_then(people: People, ends: float) -> None:
    """Reset workflows to earlier tasks, in some worlds.

    The operator draws from a separate source, so that the other draws of the seed stay
    the same.
    """
    world, draw = people.world, people.world.source("operator")
    if draw.random() >= _RESETTING:
        return
    pause = ends / draw.randint(*_RESETS)
    while world.clock.seconds() < ends:
        await asyncio.sleep(draw.expovariate(1 / pause))
        found = people.running("")
        if found and world.clock.seconds() < ends:
            await people.reset(draw.choice(found), draw.choice((0.0, draw.random(), 1.0)))


async def play(world: "World") -> None:
    """Act until the last request of a world is over."""
    draw = world.source("script")
    people = People(world, draw, FLEETS[world.fleet])
    ends = world.faults.last * ENDS_AT
    weights = {name: weight * draw.choice(_FACTORS) for name, (weight, _) in ACTIONS.items()}
    weights["apply a deployment"] = max(weights["apply a deployment"], 4.0)
    pause = ends / draw.choice(_IN_A_RUN)
    if people.names.churn:
        weights, pause = dict(_CHURN), _CHURN_PAUSE_SECONDS
    deletes, loses = draw.random() < 0.25, draw.random() < 0.15
    await asyncio.sleep(draw.uniform(0, FIRST_SECONDS))
    await people.begin()
    people.start(reset_now_and_then(people, ends))
    for name in _drawn(draw, weights):
        await asyncio.sleep(draw.expovariate(1 / pause) if draw.random() < 0.6 else 0.0)
        if world.clock.seconds() > ends:
            break
        world.note("script", name)
        people.start(ACTIONS[name][1](people))
    await people.all_have_acted()
    await people.repair()
    if loses:
        await people.lose_a_cluster()
    if deletes:
        world.note("script", "delete everything")
        await people.delete_everything()
    await people.all_have_acted()


def _drawn(draw: Random, weights: dict[str, float]) -> Iterator[str]:
    found = list(weights)
    while True:
        yield draw.choices(found, weights=[weights[name] for name in found])[0]


def address_of(document: Json) -> Address:
    """Name the object of a document."""
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]
