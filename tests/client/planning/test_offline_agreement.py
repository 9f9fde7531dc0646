"""A plan from files is equal to the decision of the live scheduler, for random small
fleets with every policy.

Both sides get the same manifests. On the live side the clusters' own code builds their
reports, and the deployments' own code the requests. On the other side they are files.
The scheduler is the real workflow on a real Temporal server. Its worker is stopped
while a fleet is sent, so it reads all of it at once, as a plan does.

Each decision is also repeated from the history of its run.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from activities.messaging.search_attributes import identity_at_start
from activities.messaging.sending import ensure_scheduler
from api_types import labels, names, queues
from api_types.messages.scheduling import (
    Bound,
    Forget,
    KnownReplica,
    PlacementRequest,
    Released,
    SetPolicy,
)
from api_types.prices import price_milli
from api_types.resources.replica_spec import replica_spec
from api_types.resources.status import Condition
from api_types.sections.programs import WorkerSettings
from api_types.sections.temporal import QueueSettings
from api_types.settings import Settings
from client.history.differences import differences
from client.history.scheduler_runs import replay
from fleet_client.refs.targets import SCHEDULER
from fleet_client.temporal.control_plane import ControlPlane
from scheduler import (
    Decision,
    deployment_view,
    engine_trees,
    plan_offline,
    read_policy,
    to_wire,
)
from tests.client.planning.random_manifests import (
    FleetManifests,
    Tree,
    random_manifests,
)
from tests.environment.waiting import pauses
from tests.random_cases import FIXED_SEED, SEED, cases
from tests.workflows.environment.harness import eventually
from tests.workflows.environment.protocol_fleet import protocol_server, workers_here
from tests.workflows.inference_cluster.builders import a_cluster
from workflows.fleet_scheduler.recorded_decisions import (
    DecisionOutcome,
    DecisionReader,
    RecordedDecision,
)
from workflows.inference_cluster.classes import published_pools
from workflows.inference_cluster.reports import scheduler_report
from workflows.inference_cluster.state import KnownClass

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.random, pytest.mark.slow]

# A campaign tries seven times as many.
FLEETS = 8
# Short runs are replayed soon.
EVENTS = 300
# Deployments whose workflows run and do nothing. Only this test sends their requests.
NOBODY = "no-worker"

Answers = Mapping[tuple[str, str], Tree]


class LiveScheduler:
    """The real scheduler workflow, whose worker runs only during a decision."""

    def __init__(self, client: Client, threads: ThreadPoolExecutor) -> None:
        self.client = client
        self.epoch = 0
        self._settings, self._threads = serving(queues.SCHEDULER), threads
        self._plane = ControlPlane(client, self._settings)
        self._handle = client.get_workflow_handle(names.FLEET_SCHEDULER_ID)

    def worker(self) -> Worker:
        return workers_here(self.client, self._settings, self._threads)[
            queues.SCHEDULER
        ]

    async def start(self) -> None:
        await ensure_scheduler(self.client)
        async with self.worker():
            seen = await eventually(
                lambda: self._handle.query("describe"),
                lambda seen: not seen["status"]["rebuilding"],
            )
            self.epoch = seen["status"]["epoch"]

    async def send(self, signal: str, payload: Tree) -> None:
        await self._handle.signal(signal, payload)

    async def decide(
        self, requests: Sequence[PlacementRequest]
    ) -> tuple[dict[str, RecordedDecision], list[Tree]]:
        """Send requests.

        Return the first decision about each by the id of the request, and the ledger.
        """
        for request in requests:
            await self.send("place", request.wire())
        wanted = {request.request_id for request in requests}
        async with self.worker():
            for pause in pauses(longest=0.2):
                found = await self._recorded(wanted)
                if found.keys() == wanted:
                    return found, await self._handle.query("ledger")
                await asyncio.sleep(pause)
        raise AssertionError(f"not decided: {wanted - found.keys()}")

    async def _recorded(self, wanted: set[str]) -> dict[str, RecordedDecision]:
        """Read the current run and, if it is a new one, the runs before it."""
        found: dict[str, RecordedDecision] = {}
        run_id = (await self._handle.describe()).run_id
        for _ in range(3):
            history = await self._plane.history(SCHEDULER, run_id)
            reader = DecisionReader(
                lambda _batch, _position, place: place.request_id in wanted, again=True
            )
            await replay(self._plane, history, reader)
            found = {
                **found,
                **{each.request.request_id: each for each in reversed(reader.found)},
            }
            run_id = history.events[
                0
            ].workflow_execution_started_event_attributes.continued_execution_run_id
            if found.keys() == wanted or not run_id:
                break
        return found


class LiveFleet:
    """One random fleet on the live scheduler."""

    def __init__(self, scheduler: LiveScheduler, fleet: FleetManifests) -> None:
        self.scheduler, self.fleet = scheduler, fleet
        self.namespaces = {
            tree["metadata"]["namespace"] for tree in (*fleet.first, *fleet.later)
        }
        self._sequence = 0
        self._started: set[tuple[str, str]] = set()
        self._ledger: list[Tree] = []

    async def report(self, clusters: Sequence[Tree]) -> None:
        """Send the reports of these clusters' workflows."""
        self._sequence += 1
        classes = {
            tree["metadata"]["name"]: KnownClass(
                generation=1,
                spec=tree["spec"],
                price_milli=price_milli(tree["metadata"].get("annotations") or {}),
            )
            for tree in self.fleet.classes
        }
        for tree in clusters:
            name = tree["metadata"]["name"]
            unready = bool(tree.get("status"))
            state = a_cluster(
                uid=f"uid-{name}",
                spec=tree["spec"],
                labels=tree["metadata"].get("labels") or {},
                classes=classes,
            )
            state.sequence = self._sequence
            state.conditions = [
                Condition(
                    type="Ready",
                    status="False" if unready else "True",
                    reason="Available",
                    last_transition_time="",
                )
            ]
            state.pools = published_pools(state)
            await self.scheduler.send(
                "report_cluster", scheduler_report(name, state, gone=False).wire()
            )

    async def decide(
        self, deployments: Sequence[Tree], kept: Sequence[Tree] = ()
    ) -> dict[tuple[str, str], RecordedDecision]:
        """Send the placement requests of these deployments, in this order.

        `kept` are the ledger entries of their replicas.
        """
        requests = {}
        for tree in deployments:
            owner = _owner(tree)
            await self._start(owner)
            own = [
                entry
                for entry in kept
                if (entry["namespace"], entry["deployment"]) == owner
            ]
            uid = f"uid-{'-'.join(owner)}"
            view = deployment_view(
                {
                    **tree,
                    "metadata": {
                        **tree["metadata"],
                        "uid": uid,
                        "generation": self._sequence,
                    },
                }
            )
            requests[owner] = PlacementRequest(
                request_id=f"{uid}/{self._sequence}",
                sequence=self._sequence,
                epoch=self.scheduler.epoch,
                namespace=owner[0],
                name=owner[1],
                uid=uid,
                generation=self._sequence,
                wanted=view.replicas,
                need=to_wire(view),
                kept=[
                    KnownReplica(
                        uid=entry["uid"],
                        name=entry["name"],
                        cluster=entry["cluster"],
                        template=entry.get("template", ""),
                        ready=True,
                        serving=True,
                    )
                    for entry in own
                ],
            )
        found, ledger = await self.scheduler.decide(list(requests.values()))
        self._ledger = [
            entry for entry in ledger if entry["namespace"] in self.namespaces
        ]
        return {owner: found[request.request_id] for owner, request in requests.items()}

    async def _start(self, owner: tuple[str, str]) -> None:
        """Start the workflow of a deployment, because the scheduler releases the
        reservations of a missing one.
        """
        if owner not in self._started:
            self._started.add(owner)
            named = ("ModelDeployment", *owner)
            await self.scheduler.client.start_workflow(
                named[0],
                None,
                id=names.workflow_id(*named),
                task_queue=NOBODY,
                **identity_at_start(*named),
            )

    async def bind(self) -> list[Tree]:
        """Report all placed replicas as started and all evicted ones as gone.

        Return the rest.
        """
        for entry in self._ledger:
            if entry["state"] == "Releasing":
                await self.scheduler.send("released", Released(uid=entry["uid"]).wire())
        running = [entry for entry in self._ledger if entry["state"] != "Releasing"]
        await self.scheduler.send(
            "bound", Bound(entries={entry["uid"]: entry for entry in running}).wire()
        )
        return running

    async def forget(self, owners: Sequence[tuple[str, str]]) -> None:
        """End deployments."""
        for namespace, name in owners:
            message = Forget(
                kind="ModelDeployment",
                namespace=namespace,
                name=name,
                uid=f"uid-{namespace}-{name}",
            )
            await self.scheduler.send("forget", message.wire())

    async def end(self) -> None:
        """Leave nothing of this fleet to the next one."""
        await self.forget(sorted(self._started))
        for entry in self._ledger:
            await self.scheduler.send("released", Released(uid=entry["uid"]).wire())
        for tree in self.fleet.clusters:
            name = tree["metadata"]["name"]
            await self.scheduler.send(
                "forget",
                Forget(kind="InferenceCluster", name=name, uid=f"uid-{name}").wire(),
            )


def _owner(tree: Tree) -> tuple[str, str]:
    return tree["metadata"]["namespace"], tree["metadata"]["name"]


def replica_manifest(entry: Tree, deployment: Tree) -> Tree:
    """Return the ModelReplica of a ledger entry, Ready, as `modelplane get mr -o yaml`
    prints it.
    """
    own = {
        labels.DEPLOYMENT: entry["deployment"],
        labels.CLUSTER: entry["cluster"],
        labels.REPLICA_INDEX: str(entry.get("index", 0)),
    }
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelReplica",
        "metadata": {
            "name": entry["name"],
            "namespace": entry["namespace"],
            "uid": entry["uid"],
            "labels": own,
        },
        "spec": replica_spec(
            deployment["spec"]["template"]["spec"], entry["cluster"], entry["engines"]
        ),
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "Available"}]
        },
    }


def answers(decisions: Mapping[tuple[str, str], Decision]) -> Answers:
    """Return the decision of the live scheduler in the words of a plan."""
    return {
        owner: {
            "desired": decision.desired,
            "shortfall": decision.shortfall,
            "message": decision.message,
            "placements": [
                [
                    each.action,
                    each.replica_name,
                    each.cluster,
                    each.index,
                    list(engine_trees(each.engines)),
                ]
                for each in decision.placements
            ],
            "evictions": [
                [each.replica_name, each.cluster, each.reason]
                for each in (*decision.evictions, *decision.victims)
            ],
        }
        for owner, decision in decisions.items()
    }


def planned(documents: Sequence[Tree], policy: Tree) -> Answers:
    """Return the plan from files."""
    return {
        (tree["namespace"], tree["name"]): {
            "desired": tree["desired"],
            "shortfall": tree["shortfall"],
            "message": tree["message"],
            "placements": [
                [
                    each["action"],
                    each["replica"],
                    each["cluster"],
                    each["index"],
                    each["engines"],
                ]
                for each in tree["placements"]
            ],
            "evictions": [
                [each["replica"], each["cluster"], each["reason"]]
                for each in tree["evictions"]
            ],
        }
        for tree in plan_offline(documents, read_policy(policy), 0)["decisions"]
    }


def decisions_of(
    found: Mapping[tuple[str, str], RecordedDecision],
) -> Mapping[tuple[str, str], Decision]:
    """Return the recorded decisions.

    Each is the same after its repetition from the recorded inputs.
    """
    for each in found.values():
        assert differences(each.recorded, each.again or DecisionOutcome()) == []
    return {
        owner: each.recorded.decision
        for owner, each in found.items()
        if each.recorded.decision is not None
    }


async def disagreements(scheduler: LiveScheduler, fleet: FleetManifests) -> list[str]:
    """Drive one fleet through both phases, and return the differences between a plan
    and the live scheduler.
    """
    live = LiveFleet(scheduler, fleet)
    await scheduler.send("set_policy", SetPolicy(policy=fleet.policy).wire())
    await live.report(fleet.clusters)
    found = await live.decide(fleet.first)
    wrong = _compared(
        "first",
        fleet,
        answers(decisions_of(found)),
        planned([*fleet.classes, *fleet.clusters, *fleet.first], fleet.policy),
    )
    if not fleet.later:
        await live.end()
        return wrong
    entries = await live.bind()
    later, before = (
        {_owner(tree) for tree in fleet.later},
        {_owner(tree): tree for tree in fleet.first},
    )
    left = [owner for owner in before if owner not in later]
    await live.forget(left)
    for entry in [
        entry for entry in entries if (entry["namespace"], entry["deployment"]) in left
    ]:
        await scheduler.send("released", Released(uid=entry["uid"]).wire())
        entries.remove(entry)
    await live.report(fleet.later_clusters)
    replicas = [
        replica_manifest(entry, before[entry["namespace"], entry["deployment"]])
        for entry in entries
    ]
    found = await live.decide(fleet.later, entries)
    documents = [*fleet.classes, *fleet.later_clusters, *replicas, *fleet.later]
    wrong += _compared(
        "later", fleet, answers(decisions_of(found)), planned(documents, fleet.policy)
    )
    await live.end()
    return wrong


def _compared(
    part: str, fleet: FleetManifests, live: Answers, plan: Answers
) -> list[str]:
    return [
        (
            f"random_manifests({fleet.number}), {part}, {'/'.join(owner)}:\n  live: "
            f"{live.get(owner)}\n  plan: {plan.get(owner)}"
        )
        for owner in sorted({*live, *plan})
        if live.get(owner) != plan.get(owner)
    ]


def serving(queue: str) -> Settings:
    return Settings(
        queues=QueueSettings(serve=(queue,)),
        worker=WorkerSettings(graceful_shutdown_seconds=0),
    )


@pytest.fixture
async def scheduler() -> AsyncIterator[LiveScheduler]:
    """A scheduler on its own server, and a worker that sends its messages to entities."""
    async with protocol_server(EVENTS) as client:
        with ThreadPoolExecutor() as threads:
            async with workers_here(client, serving(queues.WORKFLOWS), threads)[
                queues.WORKFLOWS
            ]:
                live = LiveScheduler(client, threads)
                await live.start()
                yield live


@pytest.mark.long
async def test_an_offline_plan_agrees_with_the_live_scheduler(
    scheduler: LiveScheduler,
) -> None:
    count = cases(FLEETS)
    first = 0 if SEED == FIXED_SEED else SEED
    wrong: list[Any] = []
    for number in range(first, first + count):
        wrong += await disagreements(scheduler, random_manifests(number))
    assert not wrong, f"{len(wrong)} decisions of {count} fleets differ:\n" + "\n".join(
        wrong[:5]
    )
