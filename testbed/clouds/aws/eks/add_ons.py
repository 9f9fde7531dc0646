"""Add-ons: created, described, updated and deleted. Those whose pods run on nodes are DEGRADED until there are nodes."""

from collections.abc import Mapping
from typing import Any

from testbed.clouds.aws.cloud import Cloud
from testbed.clouds.aws.eks.parts import (
    IN_USE,
    INVALID_PARAMETER,
    Handler,
    active_cluster,
    changeable,
    cluster_of,
    issue,
    item_of,
    page,
    shown,
    start_update,
)
from testbed.clouds.aws.eks.versions import ADD_ONS, NEED_NODES, add_on_versions, default_add_on
from testbed.clouds.aws.eks_store import (
    ACTIVE,
    BORN,
    CREATE_FAILED,
    CREATING,
    DEGRADED,
    DELETE_FAILED,
    DELETING,
    Cluster,
    Item,
)
from testbed.clouds.aws.faults import Fault, Kind
from testbed.clouds.aws.wire import Refusal, Request


def _create(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    cluster, name = active_cluster(cloud, request), request.text("addonName")
    if name in cluster.add_ons:
        raise Refusal(IN_USE, "Addon already exists.")
    if name not in ADD_ONS:
        raise Refusal(INVALID_PARAMETER, f"Addon {name} specified is not supported in {cluster.version} kubernetes version")
    body = {
        "addonName": name,
        "clusterName": cluster.name,
        "status": CREATING,
        "addonVersion": _version(cluster, request) or default_add_on(cluster.version),
        "health": {"issues": []},
        "addonArn": cloud.account.arn("eks", f"addon/{cluster.name}/{name}/{cloud.eks.digits(8)}"),
        "createdAt": BORN,
        "modifiedAt": BORN,
        "tags": dict(request.parameters.get("tags", {})),
    }
    add_on = cluster.add_ons[name] = Item(body)
    fault, vanish = cloud.take(Kind.FAIL, request), cloud.take(Kind.VANISH, request)
    add_on.vanishes_in = vanish.times + cloud.delays.create if vanish else None
    add_on.plan(cloud.delays.create, lambda: _created(cluster, add_on, fault))
    return {"addon": dict(body)}


def _version(cluster: Cluster, request: Request) -> str:
    wanted = request.text("addonVersion")
    if wanted and wanted not in add_on_versions(cluster.version):
        raise Refusal(INVALID_PARAMETER, f"Addon version {wanted} is not supported on Kubernetes {cluster.version}")
    return wanted


def _created(cluster: Cluster, add_on: Item, fault: Fault | None) -> None:
    if fault is not None:
        add_on.body["health"] = issue(fault.code or "ConfigurationConflict", fault.message or "the add-on could not be created")
        add_on.become(CREATE_FAILED)
        return
    _follow_nodes(cluster, add_on, DEGRADED)


def _follow_nodes(cluster: Cluster, add_on: Item, without: str) -> None:
    """Be ACTIVE where there are nodes for its pods, else DEGRADED."""
    if add_on.body["addonName"] not in NEED_NODES or cluster.has_nodes:
        add_on.body["health"] = {"issues": []}
        add_on.become(ACTIVE)
    else:
        add_on.body["health"] = issue("InsufficientNumberOfReplicas", "The add-on has fewer replicas than it wants.")
        add_on.become(without)


def _describe(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    cluster, name = cluster_of(cloud, request), request.text("addonName")
    add_on = item_of(cluster.add_ons, "addon", name)
    if add_on.status in (ACTIVE, DEGRADED):
        _follow_nodes(cluster, add_on, DEGRADED)
    return {"addon": shown(cloud, cluster.add_ons, name)}


def _list(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    return page(request, sorted(cluster_of(cloud, request).add_ons), "addons")


def _delete(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    cluster, name = cluster_of(cloud, request), request.text("addonName")
    add_on = item_of(cluster.add_ons, "addon", name)
    if add_on.status in (CREATING, DELETING):
        status = add_on.status
        if status != DELETING:
            add_on.read()
        raise Refusal(IN_USE, f"Addon {name} cannot be deleted as it is currently in {status} state")
    fault = cloud.take(Kind.DELETE_FAILED, request)
    add_on.become(DELETING)

    def end() -> None:
        if fault is not None:
            add_on.become(DELETE_FAILED)
        else:
            cluster.add_ons.pop(name, None)

    add_on.plan(cloud.delays.delete, end)
    return {"addon": dict(add_on.body)}


def _update(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    cluster = cluster_of(cloud, request)
    add_on = item_of(cluster.add_ons, "addon", request.text("addonName"))
    changeable(add_on, f"Addon {request.text('addonName')}")
    wanted = _version(cluster, request)
    return start_update(cloud, request, add_on, "AddonUpdate", {"addonVersion": wanted} if wanted else {})


HANDLERS: Mapping[str, Handler] = {
    "CreateAddon": _create,
    "DescribeAddon": _describe,
    "ListAddons": _list,
    "DeleteAddon": _delete,
    "UpdateAddon": _update,
}
