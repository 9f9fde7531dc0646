"""What the operations of EKS share: how objects are found, refused, shown and updated."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testbed.clouds.aws.cloud import Cloud
from testbed.clouds.aws.eks_store import ACTIVE, BORN, UPDATING, Cluster, Item
from testbed.clouds.aws.faults import Kind
from testbed.clouds.aws.services.network import remove_interface
from testbed.clouds.aws.wire import Refusal, Request

Handler = Callable[[Cloud, Request], Mapping[str, Any]]

IN_USE = "ResourceInUseException"
NOT_FOUND = "ResourceNotFoundException"
INVALID_PARAMETER = "InvalidParameterException"
INVALID_REQUEST = "InvalidRequestException"


def cluster_of(cloud: Cloud, request: Request) -> Cluster:
    """Give the cluster that a request names; raises a Refusal where there is none."""
    name = request.text("clusterName") or request.text("name")
    found = cloud.eks.clusters.get(name)
    if found is None:
        raise Refusal(NOT_FOUND, f"No cluster found for name: {name}.")
    return found


def active_cluster(cloud: Cloud, request: Request) -> Cluster:
    """Give the cluster that a request names, which must be able to take changes. A refusal counts as a read of it."""
    cluster = cluster_of(cloud, request)
    if cluster.status != ACTIVE:
        status = cluster.status
        cluster.read()
        raise Refusal(INVALID_REQUEST, f"Cluster '{cluster.name}' is not in ACTIVE status: {status}")
    return cluster


def item_of(items: Mapping[str, Item], kind: str, name: str) -> Item:
    """Give one object of a cluster; raises a Refusal where there is none."""
    if name not in items:
        raise Refusal(NOT_FOUND, f"No {kind} found for name: {name}.")
    return items[name]


def shown(cloud: Cloud, items: dict[str, Any], name: str) -> Mapping[str, Any]:
    """Count a read of an object, and show it; raises a Refusal where it is gone by that, with its interfaces."""
    item: Item = items[name]
    item.read()
    if item.vanishes_in is not None and item.vanishes_in <= 0:
        items.pop(name, None)
        for each in item.interfaces:
            remove_interface(cloud, each)
    if name not in items:
        raise Refusal(NOT_FOUND, f"No resource found for name: {name}.")
    return dict(item.body)


def page(request: Request, names: Sequence[str], key: str) -> dict[str, Any]:
    """Give a page of a list, under this name, as long as the request asks for."""
    start = int(request.text("nextToken") or 0)
    size = int(request.parameters.get("maxResults") or 100)
    answer: dict[str, Any] = {key: list(names[start : start + size])}
    if start + size < len(names):
        answer["nextToken"] = str(start + size)
    return answer


def changeable(item: Item, what: str) -> None:
    """Refuse to change an object that is not ACTIVE. A refusal counts as a read of it."""
    if item.status != ACTIVE:
        status = item.status
        item.read()
        raise Refusal(IN_USE, f"{what} cannot be updated as it is currently not in Active State: {status}")


def start_update(cloud: Cloud, request: Request, item: Item, kind: str, change: Mapping[str, Any]) -> Mapping[str, Any]:
    """Change an object by an update, which is in progress until it, or the object, was read often enough. A fault lets it fail."""
    name = f"{cloud.eks.digits(8)}-0000-4000-8000-{cloud.eks.digits(12)}"
    body = {"id": name, "status": "InProgress", "type": kind, "params": [], "createdAt": BORN, "errors": []}
    update = Item(body)
    cluster_of(cloud, request).updates[name] = update
    fault = cloud.take(Kind.FAIL, request)

    def finish() -> None:
        if fault is None:
            item.body.update(change)
        else:
            body["errors"] = [{"errorCode": fault.code or "Unknown", "errorMessage": fault.message or "the update failed"}]
        body["status"] = "Successful" if fault is None else "Failed"
        update.then = None
        item.become(ACTIVE)

    item.become(UPDATING)
    update.plan(cloud.delays.update, finish)
    if update.then is not None:
        item.plan(cloud.delays.update, finish)
    return {"update": dict(body)}


def issue(code: str, message: str, resources: Sequence[str] = ()) -> dict[str, Any]:
    """Give the health of an object that has one issue."""
    return {"issues": [{"code": code, "message": message, "resourceIds": list(resources)}]}
