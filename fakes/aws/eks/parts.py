"""Shared parts of the operations of EKS: find, refuse, show and update objects."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.eks_store import ACTIVE, BORN, UPDATING, EksClusterObject, EksObject
from fakes.aws.faults import FaultKind
from fakes.aws.services.network import remove_interface
from fakes.aws.wire import AwsRequest, Refusal

Handler = Callable[[AwsCloud, AwsRequest], Mapping[str, Any]]

IN_USE = "ResourceInUseException"
NOT_FOUND = "ResourceNotFoundException"
INVALID_PARAMETER = "InvalidParameterException"
INVALID_REQUEST = "InvalidRequestException"


def cluster_of(cloud: AwsCloud, request: AwsRequest) -> EksClusterObject:
    """Return the cluster of a request. Raise a Refusal if it does not exist."""
    name = request.text("clusterName") or request.text("name")
    found = cloud.eks.clusters.get(name)
    if found is None:
        raise Refusal(NOT_FOUND, f"No cluster found for name: {name}.")
    return found


def active_cluster(cloud: AwsCloud, request: AwsRequest) -> EksClusterObject:
    """Return the cluster of a request, if it can be changed.

    A refusal counts as a read of it.
    """
    cluster = cluster_of(cloud, request)
    if cluster.status != ACTIVE:
        status = cluster.status
        cluster.read()
        raise Refusal(
            INVALID_REQUEST,
            f"Cluster '{cluster.name}' is not in ACTIVE status: {status}",
        )
    return cluster


def item_of(items: Mapping[str, EksObject], kind: str, name: str) -> EksObject:
    """Return one object of a cluster. Raise a Refusal if it does not exist."""
    if name not in items:
        raise Refusal(NOT_FOUND, f"No {kind} found for name: {name}.")
    return items[name]


def shown(cloud: AwsCloud, items: dict[str, Any], name: str) -> Mapping[str, Any]:
    """Count a read of an object, and show it.

    Raise a Refusal if it is gone after that read.
    """
    item: EksObject = items[name]
    item.read()
    if item.vanishes_in is not None and item.vanishes_in <= 0:
        items.pop(name, None)
        for each in item.interfaces:
            remove_interface(cloud, each)
    if name not in items:
        raise Refusal(NOT_FOUND, f"No resource found for name: {name}.")
    return dict(item.body)


def page(request: AwsRequest, names: Sequence[str], key: str) -> dict[str, Any]:
    """Return a page of a list under this name, of the requested size."""
    start = int(request.text("nextToken") or 0)
    size = int(request.parameters.get("maxResults") or 100)
    answer: dict[str, Any] = {key: list(names[start : start + size])}
    if start + size < len(names):
        answer["nextToken"] = str(start + size)
    return answer


def changeable(item: EksObject, what: str) -> None:
    """Refuse to change an object that is not ACTIVE.

    A refusal counts as a read of it.
    """
    if item.status != ACTIVE:
        item.read()
        raise Refusal(
            IN_USE,
            f"{what} cannot be updated as it is currently not in Active State",
        )


def start_update(
    cloud: AwsCloud,
    request: AwsRequest,
    item: EksObject,
    kind: str,
    change: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Start an update of an object.

    It is in progress until it or the object was read often enough. A fault lets it
    fail.
    """
    name = f"{cloud.eks.digits(8)}-0000-4000-8000-{cloud.eks.digits(12)}"
    body = {
        "id": name,
        "status": "InProgress",
        "type": kind,
        "params": [],
        "createdAt": BORN,
        "errors": [],
    }
    update = EksObject(body)
    cluster_of(cloud, request).updates[name] = update
    fault = cloud.take(FaultKind.FAIL, request)

    def finish() -> None:
        if fault is None:
            item.body.update(change)
        else:
            body["errors"] = [
                {
                    "errorCode": fault.code or "Unknown",
                    "errorMessage": fault.message or "the update failed",
                }
            ]
        body["status"] = "Successful" if fault is None else "Failed"
        update.then = None
        item.become(ACTIVE)

    item.become(UPDATING)
    update.plan(cloud.delays.update, finish)
    if update.then is not None:
        item.plan(cloud.delays.update, finish)
    return {"update": dict(body)}


def issue(code: str, message: str, resources: Sequence[str] = ()) -> dict[str, Any]:
    """Return the health of an object with one issue."""
    return {
        "issues": [{"code": code, "message": message, "resourceIds": list(resources)}]
    }
