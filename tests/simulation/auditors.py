"""The invariants of a simulated fleet: auditors return a sentence for each violation.

`ALWAYS` holds after every step, in the middle of any fault. `AT_REST` holds when the
last fault and the last request are over for longer than every bound of the product.
`BETWEEN` compares two moments at rest without a request between them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from tests.simulation.snapshot import (
    Name,
    Pool,
    SeenDeployment,
    SeenObject,
    SeenPlacement,
    SeenPod,
    SeenWorkflow,
    Snapshot,
)

EVENTS_PER_HOUR = 150
"""The growth of a history at rest, by resyncs and new runs."""
EVENTS_OF_KINDS_PER_HOUR = {"FleetScheduler": 400, "CloudCluster": 250}
"""The scheduler receives the nodes of all clusters, and a CloudCluster checks for drift
often.
"""
NODES_SHOWN = 5
WITHDRAWAL_STEP, ENGINES_STEP = 1, 7
REFUSES_RELEASES = "was not installed for this InferenceCluster"
WAITS_FOR_USERS = ("InUse: ", "Occupied: ", "BlockedByServices: ")
"""A deletion with one of these reasons waits until users delete the dependent objects.
"""

Auditor = Callable[[Snapshot], Iterable[str]]
Comparison = Callable[[Snapshot, Snapshot], Iterable[str]]


class Finding(AssertionError):
    """Auditors found violations."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self.sentences = list(sentences)
        super().__init__("\n".join(self.sentences))


# After every step


def no_pool_is_overcommitted(seen: Snapshot) -> Iterator[str]:
    """All pods of a pool, running or pending, fit on its nodes, unless the pool shrank."""
    for pool, pods in _by_pool(seen.pods).items():
        capacity = seen.pools.get(pool)
        if capacity is None or capacity.excused:
            continue
        demand = sum(_demand(own, by_device=capacity.by_device) for own in _by_owner(pods).values())
        room = capacity.nodes * (capacity.devices if capacity.by_device else 1)
        if demand > room:
            unit = "devices" if capacity.by_device else "nodes"
            owners = _some(pod.owner for pod in pods)
            yield f"{'/'.join(pool)}: {demand} of {room} {unit} are used by {owners}"


def _demand(pods: Iterable[SeenPod], *, by_device: bool) -> int:
    """Count the capacity that the pods of one replica need.

    A new pod waits for the end of its predecessor.
    """
    counts: Counter[bool] = Counter()
    for pod in pods:
        counts[pod.deleting] += pod.devices if by_device else 1
    return max(counts.values(), default=0)


def the_ledger_equals_a_recount(seen: Snapshot) -> Iterator[str]:
    """The charges of the ledger are the sum of its entries."""
    yield from (
        f"the ledger differs from a recount: {difference}" for difference in seen.ledger_differences
    )


def no_workflow_task_fails(seen: Snapshot) -> Iterator[str]:
    """No workflow task fails or repeats its passes, and no run ends with a failure."""
    for workflow_id, found in seen.workflows.items():
        yield from (
            f"a workflow task of {workflow_id} failed: {failure}" for failure in found.failures
        )
        if found.status in ("FAILED", "TIMED_OUT", "CANCELED"):
            yield f"{workflow_id} ended as {found.status}"
        if "event/PassesRepeat" in found.shown:
            yield f"the passes of {workflow_id} queue one another without end"


def teardowns_keep_their_order(seen: Snapshot) -> Iterator[str]:
    """Teardown deletes replicas before the stack, and the stack before the cluster.

    Pods leave routes before they end. A pod may end before its teardown for other
    reasons, such as a rollout or the loss of its node. A replica that was reset begins its
    teardown again. Endpoints may stay in the route of a service that was terminated or
    whose deletion was forced.
    """
    left = set(_left_routes(seen))
    routed = {
        (route.service[0], endpoint): route
        for route in seen.routes
        for endpoint in route.endpoints
        if route.service not in left and not route.orphaned
    }
    replicas = {replica.uid: replica for replica in seen.replicas}
    for replica in seen.replicas:
        route = routed.get(replica.name)
        if (
            replica.deleting
            and not replica.skipped
            and replica.step > WITHDRAWAL_STEP
            and route is not None
        ):
            yield (
                f"{_text(replica.name)} is in step {replica.step} of its teardown, and the route "
                f"of {_text(route.service)} still has it"
            )
    for pod in seen.pods:
        going = replicas.get(pod.owner)
        if (
            pod.ending
            and going is not None
            and going.deleting
            and not (going.skipped or going.was_reset or going.replaces)
            and going.step < ENGINES_STEP
        ):
            yield (
                f"the workload of a pod of {_text(going.name)} is deleted in step {going.step} of "
                "the teardown"
            )
    occupied = Counter(
        item.place for item in seen.objects if item.kind == "Pod" or item.owner in replicas
    )
    for cluster in seen.clusters:
        if cluster.tearing_down and not cluster.forced and occupied[cluster.name]:
            count = occupied[cluster.name]
            yield f"the stack of {cluster.name} is removed, and {count} objects of replicas remain"
        if cluster.cloud_deleting and not cluster.forced and not cluster.tearing_down:
            yield f"{cluster.name} is being deleted at its cloud before its stack is removed"


def a_finished_object_left_nothing(seen: Snapshot) -> Iterator[str]:
    """An entity that ended by itself leaves no object that it did not list."""
    finished = _finished(seen)
    for item in seen.objects:
        owner = finished.get(item.owner)
        if owner is not None and not _is_listed(item, owner.left_behind):
            yield f"{owner.workflow_id} is gone, and left {item} without listing it"


def evictions_have_a_cause(seen: Snapshot) -> Iterator[str]:
    """A deployment deletes its replicas because it is deleted, or with a recorded
    reason.

    An earlier deployment with the same name may have deleted the replica. A deployment
    that was reset does not know the deletions that it requested after the reset point.
    """
    tracked = {
        placement.uid: (placement, deployment)
        for deployment in seen.deployments
        for placement in deployment.placements
    }
    for replica in seen.replicas:
        if not replica.deleting or replica.uid not in tracked:
            continue
        placement, deployment = tracked[replica.uid]
        is_its_own = replica.deployment_uid == deployment.uid and not deployment.was_reset
        if is_its_own and not placement.reason and not deployment.deleting:
            yield f"{_text(replica.name)} is being deleted, and its deployment records no cause"


def no_secret_is_shown(seen: Snapshot) -> Iterator[str]:
    """No value of a secret is in any history, log or error."""
    for where, text in seen.texts.items():
        yield from (
            f"the secret value {secret!r} is in {where}"
            for secret in sorted(seen.secrets)
            if secret in text
        )


def cloud_problems_are_explained(seen: Snapshot) -> Iterator[str]:
    """A problem of a cloud object has the cloud's words, the time and the next step."""
    for cluster in seen.clusters:
        for problem in cluster.unexplained:
            yield f"{cluster.name} does not explain the problem of {problem}"


ALWAYS: tuple[Auditor, ...] = (
    cloud_problems_are_explained,
    no_pool_is_overcommitted,
    no_workflow_task_fails,
    teardowns_keep_their_order,
    a_finished_object_left_nothing,
    evictions_have_a_cause,
    the_ledger_equals_a_recount,
    no_secret_is_shown,
)


# At rest


def every_request_is_answered(seen: Snapshot) -> Iterator[str]:
    """Each deployment has its replicas, or reasons; the scheduler waits for nothing."""
    yield from (f"the scheduler waits: {wait}" for wait in seen.waits)
    for deployment in _sound(seen):
        name = _text(deployment.name)
        staying = [each for each in deployment.placements if not each.reason]
        if not deployment.answered:
            yield f"{name} was never answered by the scheduler"
        elif not (
            0 <= len(staying) + deployment.shortfall - deployment.wanted <= _replacing(staying)
        ):
            yield (
                f"{name} wants {deployment.wanted} replicas, has {len(staying)}, and was told "
                f"that {deployment.shortfall} are missing"
            )
        if deployment.shortfall and not deployment.explained:
            yield f"{name} misses {deployment.shortfall} replicas, and no message says why"


def _replacing(placements: Iterable[SeenPlacement]) -> int:
    """Count replacements that are not ready, so that the replaced replicas stay."""
    by_index: dict[int, list[bool]] = {}
    for each in placements:
        by_index.setdefault(each.index, []).append(each.ready)
    return sum(len(ready) - 1 for ready in by_index.values() if not all(ready))


def everything_that_fits_is_placed(seen: Snapshot) -> Iterator[str]:
    """No replica waits for capacity that is free."""
    for deployment in _sound(seen):
        if deployment.placeable:
            yield (
                f"{_text(deployment.name)} misses {deployment.shortfall} replicas, of which a new "
                f"decision places {deployment.placeable}"
            )


def what_is_deleted_is_gone(seen: Snapshot) -> Iterator[str]:
    """Every deletion has ended, unless it waits for users or for the end of a fault.

    The deletion of a cluster also waits for routes, and for the devices of pods, that a
    status lists as left behind, until a person deletes them.
    """
    listed, finished = _listed(seen), _finished(seen).values()
    for workflow_id, found in seen.workflows.items():
        if not found.running or not found.deleting or workflow_id in seen.broken:
            continue
        place = workflow_id.partition("/")[2]
        if "waits for ResourceClaim" in found.unsettled and any(
            _lists_pods(each, place) for each in finished
        ):
            continue
        if "no route and no InferencePool is left" in found.unsettled:
            routes = [each for each in seen.objects if each.place == place and each.kind in _ROUTES]
            if routes and all(_is_listed(each, listed) for each in routes):
                continue
        if not (found.unsettled.startswith(WAITS_FOR_USERS) and _names_a_user(seen, found)):
            yield f"{workflow_id} is being deleted for ever: {found.unsettled}"


def objects_are_owned(seen: Snapshot) -> Iterator[str]:
    """Each object is owned by an entity that lives, or is listed as left behind.

    An entity that was reset during its deletion deletes the objects of its former uid at
    the end of the deletion. A cluster that was reset cannot get its stack back while its
    API server is lost.
    """
    running = [found for found in seen.workflows.values() if found.running]
    living = {found.uid for found in running if found.uid}
    waiting = [each for each in running if each.deleting or each.workflow_id in seen.broken]
    living = living.union(*(each.uids_before_resets for each in waiting))
    # A cloud workflow owns its objects for longer than the InferenceCluster exists.
    living |= {
        found.workflow_id.rpartition("/")[2] for found in running if found.kind == "CloudCluster"
    }
    finished = _finished(seen)
    listed = _listed(seen)
    for item in seen.objects:
        owner = finished.get(item.owner)
        own = owner.left_behind if owner is not None else frozenset()
        is_left = _is_listed(item, listed | own) or _is_in_known_stack(seen, item, listed)
        if item.owner not in living and not is_left:
            yield (
                f"{item} belongs to nobody who lives ({item.owner or 'no owner'}), and is not "
                "listed as left behind"
            )


def every_pod_is_charged(seen: Snapshot) -> Iterator[str]:
    """Each pod and each replica has a ledger entry, and each entry a running replica.

    A replica that ended releases its nodes, even if it had to leave its pods and lists
    them.
    """
    finished = _finished(seen)
    entries = {entry.uid: entry for entry in seen.ledger}
    running = {replica.uid: replica for replica in seen.replicas}
    for pod in sorted(seen.pods, key=lambda pod: (pod.cluster, pod.owner)):
        owner = finished.get(pod.owner)
        is_left = owner is not None and _lists_pods(owner, pod.cluster)
        if pod.owner not in entries and not is_left:
            yield (
                f"a pod in {pod.cluster}/{pod.pool} is of replica {pod.owner}, which has no "
                "ledger entry"
            )
    for entry in seen.ledger:
        if entry.uid not in running:
            yield f"{_text(entry.name)} ({entry.uid}) is charged as {entry.state}, and does not run"
        elif entry.state != "Bound" and not _is_excused(seen, "modelreplica", entry.name):
            yield f"{_text(entry.name)} ({entry.uid}) runs, and is charged as {entry.state}"
    yield from (
        f"{_text(each.name)} ({uid}) runs, and is not charged"
        for uid, each in running.items()
        if uid not in entries
    )


def deployments_track_what_runs(seen: Snapshot) -> Iterator[str]:
    """A deployment tracks exactly the running replicas that belong to it."""
    running = {replica.uid: replica for replica in seen.replicas}
    tracked = {
        placement.uid for deployment in seen.deployments for placement in deployment.placements
    }
    yield from (
        f"{_text(each.name)} ({uid}) runs, and no deployment tracks it"
        for uid, each in running.items()
        if uid not in tracked
    )
    for deployment in _sound(seen):
        for placement in deployment.placements:
            if placement.uid not in running:
                yield (
                    f"{_text(deployment.name)} tracks {placement.name} ({placement.uid}), which "
                    "does not run"
                )
            yield from (
                f"{placement.name} waits for {uid}, which is gone"
                for uid in placement.waits_for
                if uid not in running
            )


def ready_counts_equal_the_pods(seen: Snapshot) -> Iterator[str]:
    """A deployment counts a replica as ready if its pods are, on clusters that answer."""
    pods = _by_owner(seen.pods)
    silent = {cluster.name for cluster in seen.clusters if not cluster.reachable}
    held = {replica.uid for replica in seen.replicas if replica.held}
    for deployment in _sound(seen):
        staying = [
            each for each in deployment.placements if not each.reason and each.uid not in held
        ]
        if any(each.cluster in silent for each in staying):
            continue
        serving = [
            each
            for each in staying
            if pods.get(each.uid) and all(pod.ready for pod in pods[each.uid])
        ]
        if deployment.shown_ready != len(serving):
            shown, there = deployment.shown_ready, len(serving)
            yield (
                f"{_text(deployment.name)} shows {shown} ready replicas, and the pods of {there} "
                "are ready"
            )


def clusters_show_how_they_are(seen: Snapshot) -> Iterator[str]:
    """A cluster is Ready exactly when it answers, unless it is being deleted.

    A cluster refuses the Helm releases that a forced removal of an earlier cluster of its
    name left, until a person removes them.
    """
    left = frozenset[str]().union(*(found.left_behind for found in _finished(seen).values()))
    for cluster in seen.clusters:
        if cluster.deleting or _is_excused(seen, "inferencecluster", ("", cluster.name)):
            continue
        if cluster.finds_release and any(
            item.startswith(f"{cluster.name}/HelmRelease/") for item in left
        ):
            continue
        if cluster.ready != cluster.reachable:
            yield (
                f"{cluster.name} is {'' if cluster.ready else 'not '}Ready, and its API server "
                f"{'answers' if cluster.reachable else 'is silent'}"
            )


def caches_show_what_is_staged(seen: Snapshot) -> Iterator[str]:
    """A cache is Ready on the clusters whose volumes are complete."""
    silent = {cluster.name for cluster in seen.clusters if not cluster.reachable}
    for copy in seen.copies:
        if copy.cluster not in silent and (copy.phase == "Ready") != copy.complete:
            state = "complete" if copy.complete else "not complete"
            yield (
                f"{_text(copy.cache)} is {copy.phase} on {copy.cluster}, where its volume is "
                f"{state}"
            )


def every_route_serves(seen: Snapshot) -> Iterator[str]:
    """A route has the endpoints that its service selects, and each of them serves."""
    replicas = {replica.name: replica for replica in seen.replicas}
    for route in seen.routes:
        for endpoint in sorted(route.endpoints):
            replica = replicas.get((route.service[0], endpoint))
            if replica is None or _is_excused(seen, "modelreplica", replica.name):
                continue
            if replica.deleting or not replica.serving:
                state = "being deleted" if replica.deleting else "not serving"
                yield f"the route of {_text(route.service)} has {endpoint}, which is {state}"
        if route.expected is not None and route.expected != route.endpoints:
            has, selects = _some(route.endpoints) or "nothing", _some(route.expected) or "nothing"
            yield (
                f"the route of {_text(route.service)} has {has}, and the service selects {selects}"
            )


def the_last_writer_of_a_scale_wins(seen: Snapshot) -> Iterator[str]:
    """The wanted count is the count in the last scale, or in an apply after it."""
    for deployment in seen.deployments:
        if deployment.deleting or deployment.applied is None:
            continue
        if deployment.wanted not in (deployment.scaled, deployment.applied):
            yield (
                f"{_text(deployment.name)} wants {deployment.wanted} replicas; the last scale "
                f"asked for {deployment.scaled}, "
                f"the last apply for {deployment.applied}"
            )


AT_REST: tuple[Auditor, ...] = (
    every_request_is_answered,
    everything_that_fits_is_placed,
    what_is_deleted_is_gone,
    objects_are_owned,
    every_pod_is_charged,
    deployments_track_what_runs,
    ready_counts_equal_the_pods,
    clusters_show_how_they_are,
    caches_show_what_is_staged,
    every_route_serves,
    the_last_writer_of_a_scale_wins,
)

PROMPT: tuple[Auditor, ...] = (everything_that_fits_is_placed,)
"""Auditors that must pass soon after the last fault, long before the next resync
repairs lost messages.
"""


# Between two moments at rest


def nothing_flaps(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Without a request, no count, replica, route or object changes."""
    counts = {each.uid: each.wanted for each in before.deployments}
    for deployment in after.deployments:
        if counts.get(deployment.uid, deployment.wanted) != deployment.wanted:
            yield (
                f"{_text(deployment.name)} went from {counts[deployment.uid]} to "
                f"{deployment.wanted} replicas, and nobody asked for it"
            )
    for word, one, other in (("is gone", before, after), ("is new", after, before)):
        kept = {replica.uid for replica in other.replicas}
        yield from (
            f"{_text(each.name)} ({each.uid}) {word}, and nobody asked for it"
            for each in one.replicas
            if each.uid not in kept
        )
    routes = {route.service: route.endpoints for route in before.routes}
    for route in after.routes:
        if routes.get(route.service, route.endpoints) != route.endpoints:
            yield (
                f"the route of {_text(route.service)} changed from {_some(routes[route.service])} "
                f"to {_some(route.endpoints)}"
            )
    for workflow_id, found in after.workflows.items():
        earlier = before.workflows.get(workflow_id)
        if (
            earlier is not None
            and not earlier.outdated
            and earlier.uid == found.uid
            and earlier.generation != found.generation
        ):
            yield (
                f"{workflow_id} went from generation {earlier.generation} to {found.generation}, "
                "and nobody wrote it"
            )


def histories_do_not_grow(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """At rest the history of an entity grows only by its resyncs."""
    hours = (after.seconds - before.seconds) / 3600
    for workflow_id, found in after.workflows.items():
        earlier = before.workflows.get(workflow_id)
        bound = EVENTS_OF_KINDS_PER_HOUR.get(found.kind, EVENTS_PER_HOUR)
        if earlier is None or not found.running or workflow_id in after.broken:
            continue
        if (grown := found.events - earlier.events) > bound * hours:
            yield (
                f"the history of {workflow_id} grew by {grown} events in {hours:.1f} h at rest; "
                f"{bound} an hour are the bound"
            )


BETWEEN: tuple[Comparison, ...] = (nothing_flaps, histories_do_not_grow)


# Helpers


def audit(seen: Snapshot, auditors: Iterable[Auditor]) -> list[str]:
    """Return the findings of some auditors."""
    return [f"{auditor.__name__}: {sentence}" for auditor in auditors for sentence in auditor(seen)]


def compare(
    before: Snapshot, after: Snapshot, comparisons: Iterable[Comparison] = BETWEEN
) -> list[str]:
    """Return the forbidden changes between two moments at rest."""
    return [
        f"{comparison.__name__}: {sentence}"
        for comparison in comparisons
        for sentence in comparison(before, after)
    ]


def _by_pool(pods: Iterable[SeenPod]) -> Mapping[Pool, list[SeenPod]]:
    found: dict[Pool, list[SeenPod]] = {}
    for pod in pods:
        found.setdefault((pod.cluster, pod.pool), []).append(pod)
    return found


def _by_owner(pods: Iterable[SeenPod]) -> Mapping[str, list[SeenPod]]:
    found: dict[str, list[SeenPod]] = {}
    for pod in pods:
        found.setdefault(pod.owner, []).append(pod)
    return found


_ROUTES = ("HTTPRoute", "InferencePool")
_OWNERS_OF_PODS = ("Deployment", "LeaderWorkerSet", "owner")


def _finished(seen: Snapshot) -> dict[str, SeenWorkflow]:
    """Return the objects that ended by themselves, by uid."""
    every = (*seen.replaced, *seen.workflows.values())
    return {found.uid: found for found in every if found.finished and found.uid}


def _listed(seen: Snapshot) -> frozenset[str]:
    """Return all leftovers.

    A person may have read the list of an object that was terminated later.
    """
    every = (*seen.workflows.values(), *seen.replaced)
    return frozenset[str]().union(*(found.left_behind for found in every))


def _lists_pods(owner: SeenWorkflow, cluster: str) -> bool:
    """Return whether an object lists an owner of pods on a cluster as a leftover."""
    kinds = tuple(f"{cluster}/{kind}/" for kind in _OWNERS_OF_PODS)
    return any(item.startswith(kinds) for item in owner.left_behind)


def _is_listed(item: SeenObject, listed: frozenset[str]) -> bool:
    """Return whether the leftovers name an object, its label, or all objects of its
    owner.
    """
    namespace, _ = item.name
    by_label = f"{item.place}/label/{namespace}/{item.cache}"
    # A cluster lists whole caches, whose objects may be of an earlier uid.
    by_cache = f"{item.place}/ModelCache//{namespace}/{item.cache.rpartition('=')[2]}"
    by_owner = f"{item.place}/owner/{item.owner}"
    return not listed.isdisjoint((str(item), by_label, by_cache, by_owner))


def _is_in_known_stack(seen: Snapshot, item: SeenObject, listed: frozenset[str]) -> bool:
    """Return whether an object is in a stack of an earlier cluster that the next one shows.

    The next cluster lists the stack at its end, or shows that it refuses the releases,
    unless its API server is lost. The owner is unknown if a person deleted the mark of the
    stack.
    """
    cluster = f"inferencecluster/{item.place}"
    owners = {each.uid for each in seen.replaced if each.workflow_id == cluster}
    found = seen.workflows.get(cluster)
    if found is None or item.owner not in {"", found.uid, *owners}:
        return False
    shows = REFUSES_RELEASES in found.unsettled or cluster in seen.broken
    return shows or f"{item.place}/stack//{item.place}" in listed


def _left_routes(seen: Snapshot) -> Iterator[Name]:
    """Yield services that ended and list their route as a leftover."""
    finished = _finished(seen)
    for item in seen.objects:
        owner = finished.get(item.owner)
        if item.kind == "HTTPRoute" and owner is not None and _is_listed(item, owner.left_behind):
            _, namespace, name = owner.workflow_id.split("/")
            yield namespace, name


def _names_a_user(seen: Snapshot, deleted: SeenWorkflow) -> bool:
    """Return whether the blocker of a deleted object is another running object."""
    others = (found for found in seen.workflows.values() if found.running and found is not deleted)
    return any(found.workflow_id.rpartition("/")[2] in deleted.unsettled for found in others)


def _is_excused(seen: Snapshot, kind: str, name: tuple[str, str]) -> bool:
    return "/".join(filter(None, (kind, *name))) in seen.broken


def _sound(seen: Snapshot) -> Iterator[SeenDeployment]:
    """Yield running deployments without a persisting fault."""
    for deployment in seen.deployments:
        if not deployment.deleting and not _is_excused(seen, "modeldeployment", deployment.name):
            yield deployment


def _text(name: tuple[str, str]) -> str:
    return "/".join(filter(None, name))


def _some(names: Iterable[str]) -> str:
    found = sorted(set(names))
    more = f" and {len(found) - NODES_SHOWN} more" if len(found) > NODES_SHOWN else ""
    return ", ".join(found[:NODES_SHOWN]) + more
