"""The way of a request to a ModelService, hop by hop, with what is broken."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from api_types.resources.kinds import BY_KIND
from client.errors import CommandFailed
from client.refs.targets import Target
from client.refs.tree import Tree, at_path, condition
from client.temporal.control_plane import ControlPlane

_GOOD, _BAD, _STANDBY = "✓", "✗", "·"
# A route has no more.
_ENDPOINTS_SHOWN = 16


async def request_path(plane: ControlPlane, target: Target, service: Tree) -> list[str]:
    """Draw it: the gateway, the route, each entry, each endpoint with its replica or provider."""
    gateway = await _read(plane, "InferenceGateway", "", "default")
    address = at_path(gateway, ".status.address") or "no address"
    lines = [f"{_mark(gateway)} InferenceGateway default at {address}{_why(gateway)}"]
    route = at_path(service, ".status.route") or "none"
    routing = condition(service, "RoutingReady")
    lines.append(
        f"  {_GOOD if routing.get('status') == 'True' else _BAD} HTTPRoute {route}, /{target.namespace}/{target.name}/{_said(routing)}"
    )
    lines += [f"    {line}" for line in _retries(service)]
    routed = {str(each.get("name")): each for each in at_path(service, ".status.endpoints") or []}
    total = sum(int(each.get("weight", 0)) for each in routed.values())
    entries = at_path(service, ".status.entries") or []
    lines += [f"    {_entry_mark(entry)} {entry.get('name')}: {_entry(entry)}" for entry in entries]
    for name, endpoint in list(routed.items())[:_ENDPOINTS_SHOWN]:
        share = int(endpoint.get("weight", 0)) / total if total else 0
        lines += [f"      {line}" for line in await _endpoint(plane, target.namespace, name, endpoint, share)]
    return lines


async def _endpoint(plane: ControlPlane, namespace: str, name: str, endpoint: Tree, share: float) -> list[str]:
    sent = f"{share:.1%} of the requests to {endpoint.get('url', '')}"
    cluster = str(endpoint.get("cluster") or "")
    if not cluster:
        found = await _read(plane, "ModelEndpoint", namespace, name)
        return [f"{_mark(found)} ModelEndpoint {name}: {sent}{_why(found)}"]
    replica = await _read(plane, "ModelReplica", namespace, name)
    of_cluster = await _read(plane, "InferenceCluster", "", cluster)
    host = urlsplit(str(endpoint.get("url") or "")).hostname or ""
    return [
        f"{_mark(replica)} ModelReplica {name}: {sent}{_why(replica)}",
        f"  {_mark(of_cluster)} InferenceCluster {cluster}, gateway {host}{_why(of_cluster)}",
    ]


def _retries(service: Tree) -> list[str]:
    """Say which requests the gateway sends again, and why it does not if so; nothing where the spec does not ask for it."""
    wanted = at_path(service, ".spec.retries")
    if wanted is None:
        return []
    ready = condition(service, "RetriesReady")
    codes = ", ".join(map(str, wanted.get("codes") or ()))
    after = f"nothing of them was sent, or after {codes}" if codes else "nothing of them was sent"
    times = int(wanted.get("attempts", 1))
    mark = _GOOD if ready.get("status") == "True" else _BAD
    why = "" if ready.get("status") == "True" else _said(ready)
    return [f"{mark} requests are sent again up to {times} time{'s' if times > 1 else ''} if {after}{why}"]


def _entry_mark(entry: Tree) -> str:
    if entry.get("standby"):
        return _STANDBY
    return _GOOD if entry.get("routed") else _BAD


def _entry(entry: Tree) -> str:
    parts: Iterable[str] = (
        f"weight {entry.get('weight')}",
        f"priority {entry['priority']}" if entry.get("priority") else "",
        f"{entry.get('ready')} of {entry.get('matched')} endpoints ready",
        f"{entry.get('routed')} routed" if entry.get("routed") != entry.get("ready") and not entry.get("standby") else "",
        "stands by" if entry.get("standby") else "",
    )
    return ", ".join(part for part in parts if part)


async def _read(plane: ControlPlane, kind: str, namespace: str, name: str) -> Tree:
    """Read an object; what cannot be read has a condition that says why."""
    try:
        return await plane.describe(Target.of(BY_KIND[kind], namespace, name))
    except CommandFailed as error:
        return {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "", "message": error.message}]}}


def _mark(tree: Tree) -> str:
    return _GOOD if condition(tree, "Ready").get("status") == "True" else _BAD


def _why(tree: Tree) -> str:
    ready = condition(tree, "Ready")
    return "" if ready.get("status") == "True" else _said(ready)


def _said(found: Tree) -> str:
    said = ": ".join(part for part in (str(found.get("reason") or ""), " ".join(str(found.get("message") or "").split())) if part)
    return f" ({said})" if said else ""
