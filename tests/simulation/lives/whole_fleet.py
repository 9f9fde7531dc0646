"""A steady fleet with objects of all kinds, for attacks on any of them."""

import asyncio
from collections.abc import Callable, Iterator

from api_types import labels, names
from tests.simulation import manifests, watching
from tests.simulation.lives.steady_fleet import (
    CLASSES,
    CLUSTERS,
    GPUS,
    SteadyFleet,
    a_class,
    a_cluster,
)
from tests.simulation.script import DELETION_ORDER, Address, address_of
from tests.workflows.environment.harness import Json, a_cache, a_deployment, condition
from tests.workflows.environment.simulated_control import a_service, an_endpoint, selecting

MODEL, CACHE, SERVICE, ENDPOINT = "chat", "weights", "talk", "burst"
APP = "app"
POOLS = {"h100": 2, "l40s": 1}
"""The pools of each cluster, and their nodes. The largest model fills a cluster."""
STAY = (names.FLEET_SCHEDULER_ID, names.STACK_UPGRADES_ID)
"""The workflows that never end."""
LIMIT_SECONDS = 4 * 3600.0
_LOOK_SECONDS = 5.0


def a_model(namespace: str, replicas: int = 2, image: int = 1) -> Json:
    """Return the deployment, which loads the cache."""
    return a_deployment(
        MODEL,
        namespace,
        replicas=replicas,
        image=f"registry.example/engine:{image}",
        modelCacheRef={"name": CACHE},
    )


def a_small_cluster(name: str) -> Json:
    """Return a cluster with few nodes."""
    pools = [{"name": pool, "className": pool, "nodeCount": POOLS[pool]} for pool in POOLS]
    return a_cluster(name, nodePools=pools)


def documents(namespace: str) -> list[Json]:
    """Return an object of every kind, in the order in which they are applied."""
    return [
        *map(a_class, CLASSES),
        *map(a_small_cluster, CLUSTERS),
        manifests.a_gateway(),
        a_cache(CACHE, namespace, "example/model"),
        a_model(namespace),
        an_endpoint(ENDPOINT, namespace=namespace, **{APP: ENDPOINT}),
        a_service(
            SERVICE,
            selecting({labels.DEPLOYMENT: MODEL}),
            selecting({APP: ENDPOINT}),
            namespace=namespace,
        ),
    ]


class WholeFleet:
    """The objects that are wanted, and the waits of an attack."""

    def __init__(self, plane: SteadyFleet, namespace: str) -> None:
        self.plane, self.namespace, self.world = plane, namespace, plane.world
        self.wanted = {address_of(each): each for each in documents(namespace)}

    def want(self, document: Json) -> None:
        """Want one more object from the beginning."""
        self.wanted[address_of(document)] = document

    async def begin(self) -> None:
        """Apply everything, and wait until it is Ready."""
        self.world.parts.prepare_control()
        for cluster in CLUSTERS:
            for pool, nodes in POOLS.items():
                self.world.parts.set_nodes(cluster, pool, nodes, GPUS)
        for document in list(self.wanted.values()):
            await self.plane.apply(document)
        await self.ready()
        await self.plane.shown()

    async def apply(self, document: Json) -> None:
        """Apply a document, and expect its object from now on."""
        self.wanted[address_of(document)] = document
        await self.plane.apply(document)

    async def apply_again(self) -> None:
        """Apply every expected object whose workflow does not run, as its owner does."""
        for address, document in self.wanted.items():
            if names.workflow_id(*address) not in self.running():
                await self.plane.apply(document)

    def running(self, *prefixes: str) -> list[str]:
        """Return the workflows that run and whose ids begin so."""
        return [
            workflow_id
            for workflow_id, execution in self.world.server.executions.items()
            if execution.run.is_open and workflow_id.startswith(prefixes or "")
        ]

    def seen(self, kind: str, namespace: str, name: str) -> Json:
        """Return an object as it describes itself, without passing time."""
        return self.world.peek(names.workflow_id(kind, namespace, name), "describe") or {}

    def unready(self) -> Iterator[str]:
        """Name the expected objects that are not Ready with their last document."""
        for address, document in self.wanted.items():
            tree = self.seen(*address)
            is_current = tree.get("status", {}).get("observedGeneration") == tree.get(
                "metadata", {}
            ).get("generation")
            if condition(tree, "Ready") != "True" or not is_current or self._has_news(address):
                yield names.workflow_id(*address)
            elif address[0] == "ModelDeployment":
                counts, wanted = tree["status"]["replicas"], tree["spec"]["replicas"]
                # A replica that is being deleted keeps its node.
                running = len(self.running(f"modelreplica/{self.namespace}/"))
                if (counts["total"], counts["ready"], running) != (wanted,) * 3:
                    yield f"{address}: {counts} of {wanted}"
                if images(document) != images(tree):
                    yield f"{address}: an earlier template"

    def _has_news(self, address: Address) -> bool:
        """Return whether an object has signals that it has not read."""
        run = self.world.server.executions[names.workflow_id(*address)].run
        return bool(run.inbox) or run.task_open

    async def until(
        self, what: str, holds: Callable[[], bool], within: float = LIMIT_SECONDS
    ) -> None:
        """Wait until something holds."""
        begun = self.world.clock.seconds()
        while not holds():
            if self.world.clock.seconds() - begun > within:
                raise AssertionError(f"{what}: {sorted(self.unready())}, {self.running()}")
            await asyncio.sleep(_LOOK_SECONDS)

    async def ready(self, within: float = LIMIT_SECONDS) -> None:
        """Wait until every wanted object is Ready, with the replicas that it wants."""
        await self.until("ready", lambda: not list(self.unready()), within)

    async def at_rest(self) -> None:
        """Run the auditors on an undisturbed fleet. Raises Finding."""
        await watching.at_rest(self.world)

    async def delete_everything(self) -> None:
        """Delete everything, and check that nothing is left anywhere."""
        for kind in DELETION_ORDER:
            for _, namespace, name in [each for each in self.wanted if each[0] == kind]:
                await self.plane.delete(kind, name, namespace)
                del self.wanted[kind, namespace, name]
        await self.until("the end", lambda: set(self.running()) <= {*STAY, *self._directories()})
        assert list(self.world.parts.objects()) == []
        assert await self.plane.scheduler("ledger") == []
        assert await self.plane.scheduler("audit") == []

    def _directories(self) -> list[str]:
        return self.running("endpointdirectory/")


def images(document: Json) -> list[str]:
    """Return the images of the engines of a deployment."""
    members = [
        member
        for engine in document["spec"]["template"]["spec"]["engines"]
        for member in engine["members"]
    ]
    return [member["template"]["spec"]["containers"][0]["image"] for member in members]
