"""The changes that a plan proposes: objects from files, and options of `plan`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from api_types.validation.manifests import InvalidManifest, admit_scale
from fleet_client.errors import NotFound, Refused
from fleet_client.placement.live_fleet import LiveFleet, caches_of
from fleet_client.refs.targets import DEFAULT_NAMESPACE, Target, kinds_and_names
from fleet_client.refs.tree import Tree
from scheduler import (
    Changes,
    ClusterView,
    DeploymentView,
    Owner,
    SchedulerOptions,
    cluster_view,
    offline_cluster,
)

_READ = ("InferenceClass", "InferenceCluster", "ModelCache", "ModelDeployment")


def owner_of(tree: Tree) -> Owner:
    """Return namespace and name of an object."""
    return (
        tree["metadata"].get("namespace") or DEFAULT_NAMESPACE,
        tree["metadata"]["name"],
    )


@dataclass(frozen=True)
class ProposedChanges:
    """Objects to apply, clusters to drain, pools to remove, and replica counts to set.

    A pool is a pair of cluster and pool.
    """

    trees: Sequence[Tree] = ()
    drained: tuple[str, ...] = ()
    pools: tuple[tuple[str, str], ...] = ()
    scales: Mapping[Owner, int] = field(default_factory=dict)

    @property
    def deployments(self) -> set[Owner]:
        return {owner_of(tree) for tree in self.of("ModelDeployment")} | set(
            self.scales
        )

    def of(self, kind: str) -> list[Tree]:
        return [tree for tree in self.trees if tree["kind"] == kind]


def read_proposed_changes(
    trees: Sequence[Tree],
    drain: Sequence[str] | None,
    delete_pool: Sequence[str] | None,
    scale: Sequence[str] | None,
    namespace: str | None,
    *,
    may_be_empty: bool = False,
) -> ProposedChanges:
    """Read the proposal.

    Raise `Refused` with all problems, and for an empty proposal unless `may_be_empty`.
    """
    problems: list[str] = []
    pools: list[tuple[str, str]] = []
    scales: dict[Owner, int] = {}
    for text in delete_pool or ():
        cluster, _, pool = text.partition("/")
        if not cluster or not pool or "/" in pool:
            problems.append(f"--delete-pool {text}: write CLUSTER/POOL")
        pools.append((cluster, pool))
    for text in scale or ():
        try:
            owner, count = _scale(text, namespace)
            scales[owner] = count
        except Refused as refusal:
            problems.append(f"--scale {text}: {refusal}; {refusal.next_step}")
        except InvalidManifest as refusal:
            problems.append(f"--scale {text}: {refusal}")
    drained = tuple(name.removeprefix("ic/") for name in drain or ())
    if problems:
        raise Refused(
            "the options cannot be read",
            details=problems,
            next_step="fix them and run the command again",
        )
    if not (
        may_be_empty
        or any(tree["kind"] in _READ for tree in trees)
        or drained
        or pools
        or scales
    ):
        raise Refused(
            "nothing to plan",
            next_step=(
                "name manifests with -f, or use --drain CLUSTER, --delete-pool "
                "CLUSTER/POOL, --scale md/NAME=N"
            ),
        )
    return ProposedChanges(trees, drained, tuple(pools), scales)


def changes_of(
    live: LiveFleet, proposed: ProposedChanges, policy: SchedulerOptions | None
) -> Changes:
    """Return the proposed changes in the scheduler's terms.

    Raise `NotFound` with all missing objects.
    """
    named = {owner_of(tree) for tree in proposed.of("ModelDeployment")}
    known = {*live.deployments, *named}
    missing = [
        f"InferenceCluster {name}"
        for name in proposed.drained
        if name not in live.clusters
    ]
    missing += [
        _missing_pool(live, name, pool)
        for name, pool in proposed.pools
        if not _has_pool(live, name, pool)
    ]
    missing += [
        f"ModelDeployment {owner[0]}/{owner[1]}"
        for owner in proposed.scales
        if owner not in known
    ]
    if missing:
        raise NotFound(
            "the fleet has no such objects",
            details=list(dict.fromkeys(missing)),
            next_step=(
                "`modelplane get ic,md -A` lists the existing objects, `modelplane "
                "get ic/NAME -o yaml` shows the pools of a cluster"
            ),
        )
    return Changes(
        clusters=tuple(_clusters(live, proposed)),
        drained=proposed.drained,
        deployments=tuple(_deployments(live, proposed)),
        options=policy,
    )


def _scale(text: str, namespace: str | None) -> tuple[Owner, int]:
    word, _, count = text.rpartition("=")
    if not word or not count.lstrip("-").isdecimal():
        raise Refused("not an object and a count", next_step="write md/NAME=REPLICAS")
    ((kind, name),) = kinds_and_names([word])
    if kind.kind != "ModelDeployment" or name is None:
        raise Refused(
            "only a ModelDeployment can be scaled", next_step="write md/NAME=REPLICAS"
        )
    target = Target.of(kind, namespace, name)
    admit_scale(target.namespace, target.name, int(count))
    return (target.namespace, target.name), int(count)


def _has_pool(live: LiveFleet, cluster: str, pool: str) -> bool:
    view = live.fleet.cluster(cluster)
    return view is not None and any(one.name == pool for one in view.pools)


def _missing_pool(live: LiveFleet, cluster: str, pool: str) -> str:
    view = live.fleet.cluster(cluster)
    if view is None:
        return f"InferenceCluster {cluster}"
    names = ", ".join(one.name for one in view.pools)
    pools = f"the pools {names}" if names else "no pools"
    return f"node pool {pool} of InferenceCluster {cluster}, which has {pools}"


def _clusters(live: LiveFleet, proposed: ProposedChanges) -> Iterator[ClusterView]:
    written = {
        tree["metadata"]["name"]: tree for tree in proposed.of("InferenceCluster")
    }
    changed = {tree["metadata"]["name"]: tree for tree in proposed.of("InferenceClass")}
    removed = {
        name: {pool for cluster, pool in proposed.pools if cluster == name}
        for name, _ in proposed.pools
    }
    for name in sorted({*live.clusters, *written}):
        old, new = live.clusters.get(name), written.get(name)
        manifest: Tree = new or old or {}
        pools = manifest["spec"].get("nodePools") or []
        reclassed = any(pool["className"] in changed for pool in pools)
        if new is None and not reclassed and name not in removed:
            continue
        if old is None:
            view = offline_cluster(manifest, {**live.classes, **changed})
        else:
            same = not reclassed and pools == (old["spec"].get("nodePools") or [])
            view = _replaced(
                live, old, manifest, {**live.classes, **changed}, republished=not same
            )
        gone = removed.get(name, set())
        kept = tuple(pool for pool in view.pools if pool.name not in gone)
        yield replace(view, pools=kept)


def _replaced(
    live: LiveFleet,
    old: Tree,
    manifest: Tree,
    classes: Mapping[str, Tree],
    *,
    republished: bool,
) -> ClusterView:
    """Return an existing cluster with another spec, and its last reported observations."""
    status = {
        key: value
        for key, value in (old.get("status") or {}).items()
        if key != "gpuPools" or not republished
    }
    reported = cluster_view({**manifest, "status": status})
    view = offline_cluster({**manifest, "status": status}, classes)
    known = live.fleet.cluster(view.name)
    observed = {pool.name: pool.observed for pool in known.pools} if known else {}
    return replace(
        view,
        ready=reported.ready,
        gateway_address=reported.gateway_address,
        cache_storage_class=reported.cache_storage_class,
        queues=reported.queues,
        admission=reported.admission,
        observed_at=reported.observed_at,
        pools=tuple(
            replace(pool, observed=pool.observed or observed.get(pool.name))
            for pool in view.pools
        ),
    )


def _deployments(
    live: LiveFleet, proposed: ProposedChanges
) -> Iterator[DeploymentView]:
    caches = {owner_of(tree): tree for tree in proposed.of("ModelCache")}
    trees = {
        owner: tree
        for owner, tree in live.deployments.items()
        if owner in proposed.scales or any(cache in caches for cache in caches_of(tree))
    }
    for tree in proposed.of("ModelDeployment"):
        owner = owner_of(tree)
        metadata = dict(tree["metadata"])
        if before := live.deployments.get(owner):
            metadata["uid"] = before["metadata"]["uid"]
            metadata["generation"] = before["metadata"]["generation"] + 1
        trees[owner] = {**tree, "metadata": metadata}
    for owner, tree in trees.items():
        view = live.view(tree, caches)
        applied = _replicas_after_apply(live, owner, view.replicas)
        yield replace(view, replicas=proposed.scales.get(owner, applied))


def _replicas_after_apply(live: LiveFleet, owner: Owner, written: int) -> int:
    """Return the replica count after an apply.

    A count equal to the last applied one keeps a later scale.
    """
    before = live.deployments.get(owner)
    return (
        int(before["spec"]["replicas"])
        if before and live.applied.get(owner) == written
        else written
    )
