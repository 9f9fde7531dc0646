"""Add-ons: create, describe, update and delete.

An add-on whose pods run on nodes is DEGRADED until there are nodes.
"""

from collections.abc import Mapping
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.eks.parts import (
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
from fakes.aws.eks.versions import (
    ADD_ONS,
    NEED_NODES,
    add_on_versions,
    default_add_on,
)
from fakes.aws.eks_store import (
    ACTIVE,
    BORN,
    CREATE_FAILED,
    CREATING,
    DEGRADED,
    DELETE_FAILED,
    DELETING,
    EksClusterObject,
    EksObject,
)
from fakes.aws.faults import AwsFault, FaultKind
from fakes.aws.wire import AwsRequest, Refusal

_TOO_FEW = "InsufficientNumberOfReplicas"


def _create(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster, name = active_cluster(cloud, request), request.text("addonName")
    if name in cluster.add_ons:
        raise Refusal(IN_USE, "Addon already exists.")
    if name not in ADD_ONS:
        raise Refusal(
            INVALID_PARAMETER,
            f"Addon {name} specified is not supported in {cluster.version} kubernetes version",
        )
    if request.text("resolveConflicts") == "PRESERVE":
        raise Refusal(
            INVALID_PARAMETER,
            "Resolve conflicts option preserve is not supported for operation CreateAddon",
        )
    body = {
        "addonName": name,
        "clusterName": cluster.name,
        "status": CREATING,
        "addonVersion": _version(cluster, request) or default_add_on(cluster.version),
        "health": {"issues": []},
        "addonArn": cloud.account.arn(
            "eks", f"addon/{cluster.name}/{name}/{cloud.eks.digits(8)}"
        ),
        "createdAt": BORN,
        "modifiedAt": BORN,
        "tags": dict(request.parameters.get("tags", {})),
    }
    add_on = cluster.add_ons[name] = EksObject(body)
    fault, vanish = (
        cloud.take(FaultKind.FAIL, request),
        cloud.take(FaultKind.VANISH, request),
    )
    add_on.vanishes_in = vanish.times + cloud.delays.create if vanish else None
    add_on.plan(cloud.delays.create, lambda: _created(cluster, add_on, fault))
    return {"addon": dict(body)}


def _version(cluster: EksClusterObject, request: AwsRequest) -> str:
    wanted = request.text("addonVersion")
    if wanted and wanted not in add_on_versions(cluster.version):
        raise Refusal(
            INVALID_PARAMETER,
            f"Addon version {wanted} is not supported on Kubernetes {cluster.version}",
        )
    return wanted


def _created(
    cluster: EksClusterObject, add_on: EksObject, fault: AwsFault | None
) -> None:
    if fault is not None:
        add_on.body["health"] = issue(
            fault.code or "ConfigurationConflict",
            fault.message or "the add-on could not be created",
        )
        add_on.become(CREATE_FAILED)
        return
    _follow_nodes(cluster, add_on, DEGRADED)


def _follow_nodes(cluster: EksClusterObject, add_on: EksObject, without: str) -> None:
    """Set the state to ACTIVE if the add-on's pods have nodes, else to DEGRADED."""
    if add_on.body["addonName"] not in NEED_NODES or cluster.has_nodes:
        add_on.body["health"] = {"issues": []}
        add_on.become(ACTIVE)
    else:
        add_on.body["health"] = issue(
            _TOO_FEW,
            "The add-on is unhealthy because it doesn't have the desired number of replicas.",
        )
        add_on.become(without)


def _describe(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster, name = cluster_of(cloud, request), request.text("addonName")
    add_on = item_of(cluster.add_ons, "addon", name)
    codes = [each["code"] for each in add_on.body["health"]["issues"]]
    if add_on.status in (ACTIVE, DEGRADED) and codes in ([], [_TOO_FEW]):
        # An add-on that is degraded for another reason stays so.
        _follow_nodes(cluster, add_on, DEGRADED)
    return {"addon": shown(cloud, cluster.add_ons, name)}


def _list(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    return page(request, sorted(cluster_of(cloud, request).add_ons), "addons")


def _delete(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster, name = cluster_of(cloud, request), request.text("addonName")
    add_on = item_of(cluster.add_ons, "addon", name)
    if add_on.status in (CREATING, DELETING):
        status = add_on.status
        if status != DELETING:
            add_on.read()
        raise Refusal(
            IN_USE,
            f"Addon {name} cannot be deleted as it is currently in {status} state",
        )
    fault = cloud.take(FaultKind.DELETE_FAILED, request)
    add_on.become(DELETING)

    def end() -> None:
        if fault is not None:
            add_on.become(DELETE_FAILED)
        else:
            cluster.add_ons.pop(name, None)

    add_on.plan(cloud.delays.delete, end)
    return {"addon": dict(add_on.body)}


def _update(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster = cluster_of(cloud, request)
    add_on = item_of(cluster.add_ons, "addon", request.text("addonName"))
    changeable(add_on, f"Addon {request.text('addonName')}")
    wanted = _version(cluster, request)
    return start_update(
        cloud,
        request,
        add_on,
        "AddonUpdate",
        {"addonVersion": wanted} if wanted else {},
    )


HANDLERS: Mapping[str, Handler] = {
    "CreateAddon": _create,
    "DescribeAddon": _describe,
    "ListAddons": _list,
    "DeleteAddon": _delete,
    "UpdateAddon": _update,
}
