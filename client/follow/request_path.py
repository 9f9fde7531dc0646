"""The way of a request to a ModelService, hop by hop, with what is broken.

Each line is one hop, below the hop before it: the gateway, the route, the entries, their endpoints, and the cluster of a replica. Endpoints
that an entry selects and that get no requests are below it too, with the reason.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from api_types import labels as keys
from api_types.names import label_value
from api_types.resources.kinds import BY_KIND
from client.errors import CommandFailed
from client.fleet.objects import Objects
from client.refs.targets import Target
from client.refs.tree import Tree, at_path, condition, labels

_GOOD, _BAD, _STANDBY = "✓", "✗", "·"
_STEP = "  "
# A route has no more.
_ENDPOINTS_SHOWN = 16
# Of one entry, of those that get no requests: all of them often have one reason.
_UNROUTED_SHOWN = 5
# Labels of endpoints that no template has.
_OF_REPLICAS = (keys.CLUSTER, keys.REPLICA_INDEX)
# Less than this per line reads worse than lines that the terminal breaks.
_WIDTH_MIN = 40


async def request_path(plane: Objects, target: Target, service: Tree, width: int = 0) -> list[str]:
    """Draw it in lines of at most `width` cells; 0: each hop is one line."""
    lines = await _RequestPath(plane, target, service).draw()
    return [part for line in lines for part in _wrapped(line, width)]


class _RequestPath:
    def __init__(self, plane: Objects, target: Target, service: Tree) -> None:
        self._plane = plane
        self._target = target
        self._service = service
        self._routed = {str(each.get("name")): each for each in at_path(service, ".status.endpoints") or []}
        self._total = sum(int(each.get("weight", 0)) for each in self._routed.values())
        self._clusters: dict[str, Tree] = {}
        # What may be selected, by kind; read only if something that is selected gets no requests.
        self._selectable: dict[str, list[tuple[str, Tree]]] = {}

    async def draw(self) -> list[str]:
        gateway = await self._read("InferenceGateway", "", "default")
        address = at_path(gateway, ".status.address")
        lines = [f"{_mark(gateway, address)} InferenceGateway default{_at(gateway, ' at', address, 'address')}{_why(gateway)}"]
        routing = condition(self._service, "RoutingReady")
        route = at_path(self._service, ".status.route")
        name = f"HTTPRoute {route}" if route else "no HTTPRoute"
        mark = _GOOD if routing.get("status") == "True" else _BAD
        # Of a route that serves the message may have more to say, as that not all endpoints are in it.
        said = _why(self._service, "RoutingReady") or _because(str(routing.get("message") or ""))
        lines.append(f"{_STEP}{mark} {name} for /{self._target.namespace}/{self._target.name}/{said}")
        lines += [f"{_STEP * 2}{line}" for line in (*_retries(self._service), *_timeouts(self._service))]
        shown: list[str] = []
        for entry, labels_of in self._entries():
            lines.append(f"{_STEP * 2}{_entry_mark(entry)} {entry.get('name')}: {_entry(entry, self._share(entry))}")
            named = [name for name, each in self._routed.items() if each.get("entry") == entry.get("name") and name not in shown]
            shown += named
            lines += await self._endpoints(named)
            lines += await self._unrouted(entry, labels_of)
        # Those of which the service does not say for which entry they are.
        return [*lines, *await self._endpoints([name for name in self._routed if name not in shown])]

    def _entries(self) -> list[tuple[Tree, Mapping[str, str]]]:
        """Give the entries of the status, and the labels that each selects by."""
        entries: Sequence[Tree] = at_path(self._service, ".status.entries") or []
        specs: Sequence[Tree] = at_path(self._service, ".spec.endpoints") or []
        selectors = [at_path(spec, ".selector.matchLabels") or {} for spec in specs]
        return list(zip(entries, [*selectors, *({} for _ in entries[len(selectors) :])], strict=False))

    def _share(self, entry: Tree) -> float | None:
        """Give the share of the requests that an entry gets; None if that is not known."""
        weights = [int(each.get("weight", 0)) for each in self._routed.values() if each.get("entry") == entry.get("name")]
        return sum(weights) / self._total if entry.get("routed") and self._total else None

    async def _endpoints(self, names: Sequence[str]) -> list[str]:
        lines = [f"{_STEP * 3}{line}" for name in names[:_ENDPOINTS_SHOWN] for line in await self._endpoint(name)]
        return lines + _more(len(names) - _ENDPOINTS_SHOWN)

    async def _endpoint(self, name: str) -> list[str]:
        endpoint = self._routed[name]
        share = int(endpoint.get("weight", 0)) / self._total if self._total else 0
        sent = f"{share:.1%} of the requests, to {endpoint.get('url', '')}"
        cluster = str(endpoint.get("cluster") or "")
        if not cluster:
            found = await self._read("ModelEndpoint", self._target.namespace, name)
            return [f"{_mark(found)} ModelEndpoint {name}: {sent}{_why(found)}"]
        replica = await self._read("ModelReplica", self._target.namespace, name)
        host = _host(str(endpoint.get("url") or ""))
        return [f"{_mark(replica)} ModelReplica {name}: {sent}{_why(replica)}", await self._cluster(cluster, host)]

    async def _cluster(self, name: str, host: str) -> str:
        if name not in self._clusters:
            self._clusters[name] = await self._read("InferenceCluster", "", name)
        found = self._clusters[name]
        address = host or at_path(found, ".status.gateway.address")
        shown = _at(found, ", gateway", address, "gateway address")
        return f"{_STEP}{_mark(found, address)} InferenceCluster {name}{shown}{_why(found)}"

    async def _unrouted(self, entry: Tree, wanted: Mapping[str, str]) -> list[str]:
        """Give the endpoints and replicas that an entry selects by their labels, and that are neither routed nor ready to be."""
        matched, ready = int(entry.get("matched") or 0), int(entry.get("ready") or 0)
        if (matched and ready >= matched) or not wanted:
            return []
        lines: list[list[str]] = []
        taken = False
        for kind in ("ModelEndpoint", "ModelReplica"):
            for name, tree in await self._of_kind(kind):
                own = labels(tree)
                if any(own.get(key) != value for key, value in wanted.items()):
                    continue
                if name in self._routed or (kind == "ModelEndpoint" and condition(tree, "Ready").get("status") == "True"):
                    taken = True
                    continue
                lines.append(await self._waiting(kind, name, tree))
        if not lines and not matched:
            lines = [[f"{_BAD} an entry before it has all that it selects"]] if taken else await self._without_replicas(wanted)
        shown = [f"{_STEP * 3}{line}" for part in lines[:_UNROUTED_SHOWN] for line in part]
        return shown + _more(len(lines) - _UNROUTED_SHOWN)

    async def _without_replicas(self, wanted: Mapping[str, str]) -> list[list[str]]:
        """Give the deployments whose replicas would have the labels of an entry, where none exists; or that there are none either."""
        own = {key: value for key, value in wanted.items() if key not in _OF_REPLICAS}
        lines: list[list[str]] = []
        for name, tree in await self._of_kind("ModelDeployment"):
            has = (at_path(tree, ".spec.template.metadata.labels") or {}) | {keys.DEPLOYMENT: label_value(name)}
            if own and all(has.get(key) == value for key, value in own.items()):
                lines.append([self._deployment(name, tree, narrowed=len(own) < len(wanted))])
        pairs = ",".join(f"{key}={value}" for key, value in sorted(wanted.items()))
        return lines or [[f"{_BAD} nothing in namespace {self._target.namespace} has the labels {pairs}"]]

    def _deployment(self, name: str, tree: Tree, *, narrowed: bool) -> str:
        """Say why a deployment has no replica with the labels; `narrowed`: which name a cluster or an index of replicas too."""
        command = Target.of(BY_KIND["ModelDeployment"], self._target.namespace, name).command
        count = int(at_path(tree, ".spec.replicas") or 0)
        if not count:
            return f"{_BAD} ModelDeployment {name}: 0 replicas (`modelplane scale {command} --replicas 1` starts one)"
        ready = int(at_path(tree, ".status.replicas.ready") or 0)
        no_such = ", none of which has these labels" if narrowed else ""
        explained = f"`modelplane explain {command}` says where they are"
        return f"{_BAD} ModelDeployment {name}: {ready} of {count} replicas ready{no_such} ({explained})"

    async def _waiting(self, kind: str, name: str, tree: Tree) -> list[str]:
        if kind == "ModelEndpoint":
            url = at_path(tree, ".spec.url") or ""
            # The reason names the URL that it is about.
            why = _why(tree) or _because("its backend is not published yet")
            return [f"{_BAD} ModelEndpoint {name}: no requests{'' if url in why else f', to {url}'}{why}"]
        cluster = str(at_path(tree, ".spec.clusterName") or labels(tree).get(keys.CLUSTER) or "")
        lines = [f"{_BAD} ModelReplica {name}: no requests{_why(tree) or _because('its endpoint is not published yet')}"]
        return [*lines, await self._cluster(cluster, "")] if cluster else lines

    async def _of_kind(self, kind: str) -> list[tuple[str, Tree]]:
        if kind not in self._selectable:
            try:
                listed = await self._plane.list(BY_KIND[kind], self._target.namespace)
            except CommandFailed:
                listed = []
            self._selectable[kind] = [(each.target.name, each.tree) for each in listed]
        return self._selectable[kind]

    async def _read(self, kind: str, namespace: str, name: str) -> Tree:
        """Read an object; what cannot be read has a condition that says why."""
        target = Target.of(BY_KIND[kind], namespace, name)
        try:
            return await self._plane.describe(target)
        except CommandFailed as error:
            message = error.message.removeprefix(f"{target.title} ")
            return {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "", "message": message}]}}


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _retries(service: Tree) -> list[str]:
    """Say which requests the gateway sends again, and why it does not if so; nothing where the spec does not ask for it."""
    wanted = at_path(service, ".spec.retries")
    if wanted is None:
        return []
    ready = condition(service, "RetriesReady")
    codes = ", ".join(map(str, wanted.get("codes") or ()))
    after = f"nothing of them was sent, or after {codes}" if codes else "nothing of them was sent"
    times = int(wanted.get("attempts", 1))
    again = f"sent again up to {times} time{'s' if times > 1 else ''} if {after}"
    if ready.get("status") == "True":
        return [f"{_GOOD} requests are {again}"]
    return [f"{_BAD} requests are not {again}{_why(service, 'RetriesReady')}"]


def _timeouts(service: Tree) -> list[str]:
    """Say when the gateway ends a request, and why it does not if so; nothing where the spec does not ask for it."""
    wanted = at_path(service, ".spec.timeouts")
    if wanted is None:
        return []
    times = [
        f"{what} after {wanted[field]}"
        for field, what in (("request", "a request"), ("backendRequest", "one that was sent to an endpoint"))
        if wanted.get(field)
    ]
    if condition(service, "TimeoutsReady").get("status") == "True":
        return [f"{_GOOD} the gateway ends {', and '.join(times)}"]
    return [f"{_BAD} the gateway does not end {', or '.join(times)}{_why(service, 'TimeoutsReady')}"]


def _entry_mark(entry: Tree) -> str:
    if entry.get("standby"):
        return _STANDBY
    return _GOOD if entry.get("routed") else _BAD


def _entry(entry: Tree, share: float | None) -> str:
    matched, ready = int(entry.get("matched") or 0), int(entry.get("ready") or 0)
    parts: Iterable[str] = (
        f"weight {entry.get('weight')}{f' ({share:.1%})' if share is not None else ''}",
        f"priority {entry['priority']}" if entry.get("priority") else "",
        f"{ready} of {matched} endpoints ready" if matched else "no endpoint is published",
        f"{entry.get('routed')} routed" if entry.get("routed") != ready and not entry.get("standby") else "",
        "on standby: entries before it serve" if entry.get("standby") else "",
    )
    return ", ".join(part for part in parts if part)


def _more(count: int) -> list[str]:
    return [f"{_STEP * 3}and {count} more"] if count > 0 else []


def _mark(tree: Tree, address: Any = "-") -> str:
    return _GOOD if address and condition(tree, "Ready").get("status") == "True" else _BAD


def _at(tree: Tree, before: str, address: Any, what: str) -> str:
    """Say where a gateway is; nothing of one that could not be read."""
    if address:
        return f"{before} {address}"
    return f", which has no {what}" if "metadata" in tree else ""


def _why(tree: Tree, condition_type: str = "Ready") -> str:
    """Say why a condition is not True; empty if it is, or if nothing is said."""
    found = condition(tree, condition_type)
    if found.get("status") == "True":
        return ""
    return _because(": ".join(part for part in (str(found.get("reason") or ""), str(found.get("message") or "")) if part))


def _because(text: str) -> str:
    said = " ".join(text.split())
    return f" ({said})" if said else ""


def _wrapped(line: str, width: int) -> list[str]:
    """Break a line so that what follows is below its text, and right of the mark."""
    if not width or len(line) <= width:
        return [line]
    text = line.lstrip(" ")
    indent = len(line) - len(text)
    # Names, addresses and URLs stay whole: they are copied.
    return textwrap.wrap(
        text,
        max(width, indent + _WIDTH_MIN),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + len(_GOOD) + 1),
        break_long_words=False,
        break_on_hyphens=False,
    )
