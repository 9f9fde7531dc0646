"""The compute API: JSON objects by full name, created and deleted by operations.

One rule holds for all kinds: an object cannot be deleted while another one names it in
a field.
"""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from typing import Any

from google.cloud import container_v1, filestore_v1

from fakes.gcp.calls.errors import CloudError, in_use, not_ready
from fakes.gcp.calls.faults import OperationFails
from fakes.gcp.calls.script import first_of
from fakes.gcp.services.compute import places
from fakes.gcp.services.compute.collections import READ_ONLY, Path, snake
from fakes.gcp.services.compute.filters import matcher
from fakes.gcp.services.gke.capacity import NETWORKS, REGIONS, region_of
from fakes.gcp.services.leftovers import COMPUTE
from fakes.gcp.services.operations import Operation
from fakes.gcp.services.world import World


def method_of(verb: str, path: Path) -> str:
    """Return the name of the client's method for a request.

    `verb` is the HTTP method.
    """
    if verb == "GET":
        if path.scope == "aggregated":
            return "aggregated_list"
        return "get" if path.name or not path.collection else "list"
    if path.verb:
        return path.verb
    return {"POST": "insert", "DELETE": "delete", "PATCH": "patch"}.get(
        verb, verb.lower()
    )


def answer(
    world: World,
    method: str,
    path: Path,
    query: Mapping[str, str],
    body: Mapping[str, Any],
) -> dict[str, Any]:
    """Answer one request. Raise CloudError."""
    if path.project != world.project:
        raise _missing(f"projects/{path.project}")
    if path.collection == "operations":
        return _operation(world, path, method)
    if method == "insert":
        return _insert(world, path, query, body)
    if method == "delete":
        return _delete(world, path, query)
    if method in {"list", "aggregated_list"}:
        return _list(world, path, query)
    if method == "get":
        return _get(world, path)
    raise CloudError("UNIMPLEMENTED", f"The fake has no {method} of {path.collection}.")


def _missing(name: str) -> CloudError:
    return CloudError("NOT_FOUND", f"The resource '{name}' was not found")


def _get(world: World, path: Path) -> dict[str, Any]:
    if not path.collection:
        return places.project(world)
    if path.collection in {"regions", "zones"}:
        return places.place(world, path)
    if path.collection in READ_ONLY:
        found = next(
            (
                each
                for each in places.hardware(world, path)
                if each["name"] == path.name
            ),
            None,
        )
    else:
        world.operations.advance(path.full_name)
        found = world.visible(path.full_name)
    if found is None:
        raise _missing(path.full_name)
    return dict(found)


def _list(world: World, path: Path, query: Mapping[str, str]) -> dict[str, Any]:
    if path.scope == "aggregated":
        return _aggregated(world, path, query)
    if path.collection in {"regions", "zones"}:
        items = places.places(world, path.collection)
    elif path.collection in READ_ONLY:
        items = places.hardware(world, path)
    else:
        items = [world.objects[name] for name in world.below(f"{path.full_name}/")]
    page, token = _page(
        world, [item for item in items if matcher(query.get("filter", ""))(item)], query
    )
    return {"items": page, **({"nextPageToken": token} if token else {})}


def _page(
    world: World, items: list[dict[str, Any]], query: Mapping[str, str]
) -> tuple[list[dict[str, Any]], str]:
    start, size = (
        int(query.get("pageToken") or 0),
        min(int(query.get("maxResults") or world.page_size), world.page_size),
    )
    return items[start : start + size], str(start + size) if start + size < len(
        items
    ) else ""


def _aggregated(world: World, path: Path, query: Mapping[str, str]) -> dict[str, Any]:
    matches = matcher(query.get("filter", ""))
    found = [
        name
        for name in world.below(f"{world.root}/")
        if name.split("/")[-2] == path.collection
    ]
    names = [
        name
        for name in found
        if isinstance(world.objects[name], dict) and matches(world.objects[name])
    ]
    page, token = _page(world, [world.objects[name] for name in names], query)
    scopes: dict[str, Any] = {f"regions/{region}": {} for region in REGIONS}
    for item in page:
        scope = (
            item["selfLink"].removeprefix(f"{COMPUTE}/{world.root}/").rsplit("/", 2)[0]
        )
        scopes.setdefault(scope, {}).setdefault(path.collection, []).append(item)
    for content in scopes.values():
        # A scope without objects has a warning instead of an empty list.
        if not content:
            content["warning"] = {
                "code": "NO_RESULTS_ON_PAGE",
                "message": "There are no results for scope on this page.",
            }
    return {"items": scopes, **({"nextPageToken": token} if token else {})}


def _repeated(
    world: World, method: str, name: str, query: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the operation of an earlier call with this request id."""
    earlier = world.requests.get((method, name, query.get("requestId", "")))
    operation = world.operations.get(earlier) if earlier else None
    if operation is None:
        return None
    world.repeated = True
    return _shown(operation)


def _begun(
    world: World, operation: Operation, query: Mapping[str, str]
) -> dict[str, Any]:
    """Return a new operation, and remember it under the request id of the call."""
    if request := query.get("requestId"):
        world.requests[operation.kind, operation.target, request] = operation.name
    return _shown(operation)


def _insert(
    world: World, path: Path, query: Mapping[str, str], body: Mapping[str, Any]
) -> dict[str, Any]:
    name = f"{path.full_name}/{body.get('name', '')}"
    if earlier := _repeated(world, "insert", name, query):
        return earlier
    if not body.get("name"):
        raise _invalid("resource.name", "")
    if name in world.objects:
        raise CloudError("ALREADY_EXISTS", f"The resource '{name}' already exists")
    item = {
        **body,
        "id": str(world.number()),
        "selfLink": f"{COMPUTE}/{name}",
        "creationTimestamp": world.now().isoformat(),
    }
    _check_references(world, item)
    if path.collection == "networks" and places.network_count(world) >= (
        limit := world.capacity.limit(NETWORKS)
    ):
        raise CloudError(
            "PERMISSION_DENIED",
            f"Quota 'NETWORKS' exceeded.  Limit: {limit}.0 globally.",
            http_reason="quotaExceeded",
        )
    if path.collection == "subnetworks":
        _check_subnet(world, path, item)
    world.objects[name] = item
    fails = first_of(world.met, OperationFails)

    def finish() -> CloudError | None:
        if fails and not fails.effect:
            world.remove(name)
        elif path.collection == "subnetworks":
            item["state"] = "READY"
        return fails.error() if fails else None

    return _begun(
        world, world.operations.start(path.parent, "insert", name, finish), query
    )


def _invalid(field: str, value: str) -> CloudError:
    return CloudError(
        "INVALID_ARGUMENT", f"Invalid value for field '{field}': '{value}'."
    )


def _check_references(world: World, item: dict[str, Any]) -> None:
    """Refuse an object whose network is missing or being created.

    Write the network's name as a link.
    """
    if "network" not in item:
        return
    network = f"{world.root}/global/networks/{item['network'].rpartition('/')[2]}"
    if network not in world.objects:
        raise _missing(network)
    if running := world.operations.running_on(network):
        running.advance()
        raise not_ready(network)
    item["network"] = f"{COMPUTE}/{network}"


def _ranges(subnet: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("resource.ipCidrRange", str(subnet.get("ipCidrRange", ""))),
        *(
            (
                "resource.secondaryIpRanges[].ipCidrRange",
                str(each.get("ipCidrRange", "")),
            )
            for each in subnet.get("secondaryIpRanges", [])
        ),
    ]


def _check_subnet(world: World, path: Path, item: dict[str, Any]) -> None:
    region = path.scope.partition("/")[2]
    if region not in REGIONS:
        raise _missing(f"{world.root}/regions/{region}")
    item["region"] = f"{COMPUTE}/{world.root}/regions/{region}"
    taken: list[tuple[str, IPv4Network]] = []
    for name, other in world.objects.items():
        if "/subnetworks/" in name and other["network"] == item.get("network"):
            taken += [(name, IPv4Network(text)) for _, text in _ranges(other)]
    for field, text in _ranges(item):
        try:
            network = IPv4Network(text)
        except ValueError as error:
            raise _invalid(field, text) from error
        for name, other_range in taken:
            if network.overlaps(other_range):
                raise CloudError(
                    "INVALID_ARGUMENT",
                    f"Invalid IPCidrRange: {text} conflicts with existing subnetwork '{name}'.",
                )
        taken.append((str(item.get("name")), network))


def users(world: World, name: str) -> Iterator[str]:
    """Return the objects that name another one.

    Objects of compute name others by a link, clusters and Filestore instances by their
    network.
    """
    kind, last = name.split("/")[-2:]
    for other, item in world.objects.items():
        if isinstance(item, container_v1.Cluster):
            location = other.split("/")[3]
            region = location if location in REGIONS else region_of(location)
            same = (
                item.network == last
                if kind == "networks"
                else item.subnetwork == last and f"/regions/{region}/" in name
            )
            if kind in {"networks", "subnetworks"} and same:
                yield other
        elif isinstance(item, filestore_v1.Instance):
            if kind == "networks" and any(
                each.network.rpartition("/")[2] == last for each in item.networks
            ):
                peer = other.rpartition("/")[2]
                yield f"{world.root}/global/networkPeerings/filestore-peer-{peer}"
        elif (
            isinstance(item, dict)
            and other != name
            and any(text.endswith(f"/{name}") for text in _texts(item))
        ):
            yield other


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if key != "selfLink":
                yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _delete(world: World, path: Path, query: Mapping[str, str]) -> dict[str, Any]:
    name = path.full_name
    if earlier := _repeated(world, "delete", name, query):
        return earlier
    if name not in world.objects:
        raise _missing(name)
    if running := world.operations.running_on(name):
        running.advance()
        raise not_ready(name)
    by = next(users(world, name), None)
    if by is not None and path.collection != "networks":
        raise in_use(name, by)
    fails = first_of(world.met, OperationFails)

    def finish() -> CloudError | None:
        # The call to delete a network always succeeds, and its operation fails.
        used_by = next(users(world, name), None)
        if used_by is not None and fails is None:
            return in_use(name, used_by)
        if fails is None or fails.effect:
            world.remove(name)
        return fails.error() if fails else None

    return _begun(
        world, world.operations.start(path.parent, "delete", name, finish), query
    )


def _operation(world: World, path: Path, method: str) -> dict[str, Any]:
    if method == "list":
        found = world.operations.below(path.parent)
        for each in found:
            each.advance()
        return {"items": [_shown(each) for each in found]}
    operation = world.operations.get(path.full_name)
    if operation is None:
        raise _missing(path.full_name)
    operation.advance()
    return _shown(operation)


def _shown(operation: Operation) -> dict[str, Any]:
    document: dict[str, Any] = {
        "kind": "compute#operation",
        "id": operation.short_name.rpartition("-")[2].lstrip("0"),
        "name": operation.short_name,
        "operationType": operation.kind,
        "targetLink": f"{COMPUTE}/{operation.target}",
        "selfLink": f"{COMPUTE}/{operation.name}",
        "status": operation.state,
        "progress": 100 if operation.done else 0,
    }
    if "/regions/" in operation.name:
        document["region"] = f"{COMPUTE}/{operation.name.partition('/operations/')[0]}"
    if operation.error is not None:
        document["error"] = {
            "errors": [
                {
                    "code": snake(operation.error.http_reason).upper(),
                    "message": operation.error.message,
                }
            ]
        }
        document["httpErrorStatusCode"] = operation.error.http_status
        document["httpErrorMessage"] = operation.error.code
    return document
