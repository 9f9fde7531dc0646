"""Explore the protocol of deployments, scheduler, replicas and clusters from a seed,
with faults and an audit after every step.

`python -m tests.workflows.explorer.explore --steps 10000000 --seed 1` runs an
exploration. It prints a summary, or the last steps before a finding. An exploration is
a series of episodes. Each episode starts with an empty fleet, takes some thousand steps
with faults, and then some without, until every wanted object must exist.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from api_types.names import FLEET_SCHEDULER_ID
from api_types.validation.manifests import dump, load
from scheduler import reasons
from scheduler.hardware.template import charges
from tests.workflows.environment.harness import a_deployment
from tests.workflows.explorer.cluster_node import ClusterNode
from tests.workflows.explorer.nodes import DeploymentNode, ReplicaNode
from tests.workflows.explorer.scheduler import SchedulerNode
from tests.workflows.explorer.world import Chances, World
from workflows.fleet_scheduler.rebuild.lost_state import LostState

NAMESPACE = "ml"
DEPLOYMENTS = ("a", "b", "c", "d")
CLUSTERS = ("east", "west")
POOLS = ("blue", "green")
NODES_MAX = 3
REPLICAS_MAX = 4
# Deployments of `d` preempt those of `c`, and both preempt the others. Without a
# cooldown, preemption goes on as long as there is a victim.
POLICY = {
    "priorityClasses": {"high": 100, "middle": 50},
    "preemptionCooldownSeconds": 0,
}
PRIORITY_CLASSES = {"c": "middle", "d": "high"}
HOUR = 3_600_000

EPISODE_STEPS = 2_000
# The time after the last fault. It is enough for every retry and every resync period.
QUIET_MS = 3 * HOUR
QUIET_STEPS = 60_000


class Finding(AssertionError):
    """A violated invariant, with the steps before it."""


@dataclass
class Outcome:
    """The result of an exploration."""

    steps: int = 0
    episodes: int = 0
    applied: int = 0


class Episode:
    """One fleet, from its start to its rest."""

    def __init__(self, seed: int, chances: Chances) -> None:
        self.seed = seed
        self.random = Random(seed)  # noqa: S311
        self.world = World(self.random, chances)
        self.lost: list[LostState] = []
        self.world.start_scheduler = self._start_scheduler
        for name in CLUSTERS:
            self._start_cluster(name)
        self.world.ms += 5_000

    def _start_scheduler(self) -> SchedulerNode:
        """Start a scheduler without state, or one that continues the last one, or an
        earlier one if visibility is late.
        """
        found: LostState | None = None
        if self.lost and self.world.happens(self.world.chances.continued_lost):
            found = self.lost[
                -1
                - self.world.happens(self.world.chances.unlisted) * (len(self.lost) > 1)
            ]
            self.world.note(
                f"the scheduler continues a state: {found.problem or 'found'}"
            )
        return SchedulerNode(self.world, POLICY, found)

    def _start_cluster(self, name: str) -> None:
        pools = {pool: self.random.randrange(NODES_MAX + 1) for pool in POOLS}
        self.world.start(ClusterNode(self.world, name, pools))

    # Users and operators

    def disturb(self) -> None:
        """Let a user or an operator do something, with the configured probability."""
        chances, world = self.world.chances, self.world
        if world.happens(chances.user):
            self.random.choice(
                [
                    self._apply,
                    self._scale,
                    self._scale,
                    self._change_template,
                    self._delete,
                    self._change_cluster,
                ]
            )()
        if world.happens(chances.terminated):
            self._terminate()
        if (
            world.happens(chances.scheduler_lost)
            and FLEET_SCHEDULER_ID in world.running
        ):
            world.terminate(FLEET_SCHEDULER_ID)
            handed_over = LostState.model_validate(world.ended[FLEET_SCHEDULER_ID])
            if not handed_over.knew_nothing:
                self.lost.append(handed_over)

    def _deployment(self) -> DeploymentNode | None:
        running = [
            node
            for node in self.world.running.values()
            if isinstance(node, DeploymentNode)
        ]
        return self.random.choice(running) if running else None

    def _apply(self) -> None:
        name, document = self.random.choice(DEPLOYMENTS), deepcopy(DOCUMENT)
        document["metadata"] = {**document["metadata"], "name": name}
        document["spec"] = {
            **document["spec"],
            "replicas": self.random.randrange(REPLICAS_MAX + 1),
        }
        if name in PRIORITY_CLASSES:
            document["spec"]["scheduling"] = {
                "priorityClassName": PRIORITY_CLASSES[name],
                "preemptionPolicy": "LowerPriority",
            }
        running = self.world.running.get(f"modeldeployment/{NAMESPACE}/{name}")
        self.world.note(
            f"user applies {name} with {document['spec']['replicas']} replicas"
        )
        if isinstance(running, DeploymentNode):
            running.user(lambda: running.apply(document))
        else:
            self.world.start(DeploymentNode(self.world, name, document))

    def _scale(self) -> None:
        if node := self._deployment():
            count = self.random.randrange(REPLICAS_MAX + 1)
            self.world.note(f"user scales {node.workflow_id} to {count}")
            node.user(lambda: node.scale(count))

    def _change_template(self) -> None:
        if (node := self._deployment()) and node.state.spec is not None:
            document = {
                "metadata": {"name": node.context.name, "namespace": NAMESPACE},
                "spec": deepcopy(node.state.spec),
            }
            engine = document["spec"]["template"]["spec"]["engines"][0]["members"][0][
                "template"
            ]["spec"]["containers"][0]
            engine["image"] = f"registry.example/engine:{self.random.randrange(1000)}"
            self.world.note(f"user changes the template of {node.workflow_id}")
            node.user(lambda: node.apply(document))

    def _delete(self) -> None:
        if node := self._deployment():
            self.world.note(f"user deletes {node.workflow_id}")
            force = "all" if self.random.random() < 0.1 else ""
            node.user(lambda: node.delete(force))

    def _change_cluster(self) -> None:
        name = self.random.choice(CLUSTERS)
        node = self.world.running.get(f"inferencecluster/{name}")
        if not isinstance(node, ClusterNode):
            self.world.note(f"user applies cluster {name}")
            self._start_cluster(name)
        elif self.random.random() < 0.1:
            self.world.note(f"user deletes cluster {name}")
            node.delete()
        elif not node.state.deleting:
            least = 0 if self.random.random() < 0.2 else NODES_MAX
            node.pools = {
                pool: self.random.randrange(min(least, node.pools[pool]), NODES_MAX + 1)
                for pool in POOLS
            }
            self.world.note(f"{name} has {node.pools}")
            node.show()

    def _terminate(self) -> None:
        candidates = [each for each in self.world.running if each != FLEET_SCHEDULER_ID]
        if candidates:
            self.world.terminate(self.random.choice(sorted(candidates)))

    # Going on

    def run(self, steps: int) -> None:
        """Explore, and then let everything come to rest."""
        for _ in range(steps):
            self.disturb()
            self.world.advance()
            self.audit()
        self._restore()
        until = self.world.ms + QUIET_MS
        for _ in range(QUIET_STEPS):
            if self.world.ms >= until and not self.world.is_busy():
                break
            self.world.advance()
            self.audit()
        else:
            self._fail(["it does not come to rest"])
        self.audit_rest()

    def _restore(self) -> None:
        """End all faults, and restart the terminated workflows that are still wanted,
        as an operator has to.
        """
        self.world.note("no more faults")
        self.world.chances = Chances(**dict.fromkeys(vars(self.world.chances), 0.0))
        for name in CLUSTERS:
            workflow_id = f"inferencecluster/{name}"
            # Half of the deleted objects stay deleted.
            deleted = (
                self.world.ended.get(workflow_id, {}).get("gone")
                and self.random.random() < 0.5
            )
            if workflow_id not in self.world.running and not deleted:
                self._start_cluster(name)
        for name in DEPLOYMENTS:
            if f"modeldeployment/{NAMESPACE}/{name}" not in self.world.running:
                document = deepcopy(DOCUMENT)
                document["metadata"] = {**document["metadata"], "name": name}
                document["spec"] = {**document["spec"], "replicas": 1}
                self.world.start(DeploymentNode(self.world, name, document))

    # Auditors

    def audit(self) -> None:
        """Check the invariants of every step."""
        found = self.world.clusters.overcommitted()
        scheduler = self.world.running.get(FLEET_SCHEDULER_ID)
        if isinstance(scheduler, SchedulerNode) and self.world.steps % 50 == 0:
            found += scheduler.cache.fleet.audit()
            if self.world.clusters.excused and scheduler.knows_all():
                self.world.clusters.excuse_no_more(self._charged(scheduler))
        if found:
            self._fail(found)

    def audit_rest(self) -> None:
        """Check the invariants of a fleet at rest."""
        world, found = self.world, list[str]()
        scheduler = world.running.get(FLEET_SCHEDULER_ID)
        if not isinstance(scheduler, SchedulerNode):
            self._fail(["no scheduler runs"])
            return
        replicas = {
            node.state.uid: node
            for node in world.running.values()
            if isinstance(node, ReplicaNode)
        }
        charged = {entry.uid: entry for entry in scheduler.cache.fleet.entries()}
        for uid, pod in world.clusters.pods.items():
            if uid not in replicas:
                found.append(
                    f"the objects of {uid} have no workflow ({pod.workflow_id})"
                )
            if uid not in charged:
                found.append(
                    f"the objects of {uid} are not charged ({pod.workflow_id})"
                )
        found += [
            f"{entry.name} ({uid}) is charged as {entry.state} and does not run"
            for uid, entry in charged.items()
            if uid not in replicas
        ]
        found += [
            f"{node.workflow_id} is being deleted for ever: {node.state.teardown}"
            for node in replicas.values()
            if node.state.deleting
        ]
        found += [
            f"{uid} is {entry.state}"
            for uid, entry in charged.items()
            if entry.state != reasons.BOUND
        ]
        found += scheduler.cache.fleet.audit()
        found += [
            f"the scheduler waits: {what}"
            for what in (
                scheduler.state.queue,
                scheduler.state.unresponsive,
                scheduler.state.withheld,
            )
            if what
        ]
        found += [
            f"{node.workflow_id} is being deleted for ever: {node.state.occupied}"
            for node in world.running.values()
            if isinstance(node, ClusterNode)
            and node.state.deleting
            and not scheduler.cache.fleet.on_cluster(node.context.name)
        ]
        present = {
            node.context.name: node.state.uid
            for node in world.running.values()
            if isinstance(node, ClusterNode)
        }
        known = {
            name: scheduler.cache.clusters[name].uid
            for name in scheduler.cache.fleet.clusters
        }
        if present != known:
            found.append(
                f"the scheduler knows the clusters {known}, and there are {present}"
            )
        owners = Counter(node.state.start.deployment for node in replicas.values())
        free = self._free(scheduler)
        for node in world.running.values():
            if isinstance(node, DeploymentNode):
                found += self._audit_deployment(node, owners[node.context.name], free)
        if found:
            self._fail(found)

    def _audit_deployment(
        self, node: DeploymentNode, replicas: int, free: int
    ) -> list[str]:
        name, state = node.context.name, node.state
        if state.deleting:
            return [f"{name} is being deleted for ever: {state.conditions}"]
        found = []
        if replicas != len(state.replicas):
            found.append(
                f"{name} tracks {len(state.replicas)} replicas and {replicas} run"
            )
        if replicas + state.shortfall != state.wanted or not state.answered:
            found.append(
                f"{name} wants {state.wanted}, has {replicas}, and was told that "
                f"{state.shortfall} are missing"
            )
        if state.shortfall and free:
            found.append(
                f"{name} misses {state.shortfall} replicas while {free} nodes are free"
            )
        found += [
            f"{name}: {replica.name} waits for {replica.after}"
            for replica in state.replicas.values()
            if replica.after
        ]
        behind = [
            replica.name for replica in state.replicas.values() if not replica.current
        ]
        return [
            *found,
            *(
                f"{name}: {replica} never became Ready with the present template"
                for replica in behind
            ),
        ]

    def _charged(self, scheduler: SchedulerNode) -> Counter[tuple[str, str]]:
        """Count the charged nodes.

        They may exceed a pool while the scheduler's figures are not those of the
        cluster.
        """
        used: Counter[tuple[str, str]] = Counter()
        for entry in scheduler.cache.fleet.entries():
            used.update(
                {
                    (entry.cluster, pool): count
                    for pool, count in charges(entry.charged).items()
                }
            )
        for pool, count in self.world.clusters.nodes.items():
            info = scheduler.cache.fleet.clusters.get(pool[0])
            known = {each.name: each.nodes for each in info.view.pools} if info else {}
            node = self.world.running.get(f"inferencecluster/{pool[0]}")
            # An equal count in an earlier report may be followed by other reports that
            # are on their way.
            newest = not isinstance(node, ClusterNode) or node.has_reported(
                scheduler.cache.clusters[pool[0]]
            )
            if known.get(pool[1]) != count or not newest:
                used[pool] = NODES_MAX + 1
        return used

    def _free(self, scheduler: SchedulerNode) -> int:
        used = self._charged(scheduler)
        present = {
            node.context.name
            for node in self.world.running.values()
            if isinstance(node, ClusterNode) and not node.state.deleting
        }
        return sum(
            max(0, count - used[pool])
            for pool, count in self.world.clusters.nodes.items()
            if pool[0] in present
        )

    def _known(self) -> list[str]:
        scheduler = self.world.running.get(FLEET_SCHEDULER_ID)
        if not isinstance(scheduler, SchedulerNode):
            return ["no scheduler runs"]
        state, cache = scheduler.state, scheduler.cache
        charged = [
            f"{entry.uid} of {entry.name} is {entry.state} on {entry.cluster}: "
            f"{charges(entry.charged)}, reuse {entry.reuse}"
            for entry in cache.fleet.entries()
        ]
        accounted = {
            name: info.view.accounted for name, info in cache.fleet.clusters.items()
        }
        waits = (
            f"survey {state.survey}, unresponsive {state.unresponsive}, doubts "
            f"{list(cache.verification.doubts)}, accounted {accounted}"
        )
        return ["what the scheduler knows:", *charged, waits]

    def _fail(self, found: list[str]) -> None:
        pods = [
            f"{uid} of {pod.workflow_id} uses {pod.nodes}"
            for uid, pod in self.world.clusters.pods.items()
        ]
        begin = f"seed {self.seed}, after {self.world.steps} steps:"
        lines = [
            begin,
            *found,
            "what runs:",
            *pods,
            *self._known(),
            "the steps before that:",
            *self.world.trace,
        ]
        raise Finding("\n".join(lines))


def _admitted() -> dict[str, Any]:
    return dump(load(a_deployment("a", NAMESPACE)))


DOCUMENT = _admitted()


def explore(
    seed: int,
    steps: int,
    chances: Chances,
    progress: Callable[[Outcome], None] | None = None,
) -> Outcome:
    """Explore at least `steps` steps. Raise Finding for a violated invariant."""
    outcome = Outcome()
    while outcome.steps < steps:
        episode = Episode(seed + outcome.episodes, chances)
        episode.run(EPISODE_STEPS)
        outcome = replace(
            outcome,
            steps=outcome.steps + episode.world.steps,
            episodes=outcome.episodes + 1,
        )
        if progress:
            progress(outcome)
    return outcome


def main() -> None:
    """Run an exploration with the command line's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--lost", type=float, default=0.0, help="how likely a signal is lost altogether"
    )
    arguments = parser.parse_args()
    began, last = time.monotonic(), 0

    def show(outcome: Outcome) -> None:
        nonlocal last
        if outcome.steps - last >= arguments.steps / 20:
            last = outcome.steps
            seconds = time.monotonic() - began
            sys.stdout.write(
                f"{outcome.steps} steps, {outcome.episodes} episodes, "
                f"{outcome.steps / seconds:.0f} steps/s\n"
            )
            sys.stdout.flush()

    try:
        outcome = explore(
            arguments.seed, arguments.steps, Chances(lost=arguments.lost), show
        )
    except Finding as finding:
        sys.stdout.write(f"{finding}\n")
        sys.exit(1)
    sys.stdout.write(
        f"no finding in {outcome.steps} steps of {outcome.episodes} episodes from "
        f"seed {arguments.seed}\n"
    )


if __name__ == "__main__":
    main()
