"""The path of a request to a ModelService, hop by hop, with all broken parts.

Each line is one hop, indented below the previous one: the gateway, the route, the
entries, their endpoints, and the cluster of a replica. Below an entry are also the
endpoints that it selects and that get no requests, with the reason.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from api_types import labels as keys
from api_types.names import label_value
from api_types.resources.kinds import BY_KIND
from fleet_client.errors import CommandFailed
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree, at_path, condition, labels

_GOOD, _BAD, _STANDBY = "✓", "✗", "·"
_STEP = "  "
# A route has no more endpoints than this.
_ENDPOINTS_SHOWN = 16
# The maximum number of endpoints without requests that are shown per entry. They often
# share one reason.
_UNROUTED_SHOWN = 5
# Labels of endpoints that no pod template has.
_OF_REPLICAS = (keys.CLUSTER, keys.REPLICA_INDEX)
# Lines narrower than this are harder to read than lines that the terminal wraps.
_WIDTH_MIN = 40


async def request_path(
    plane: FleetObjects, target: Target, service: Tree, width: int = 0
) -> list[str]:
    """Return the path as lines of at most `width` cells.

    With 0, each hop is one line.
    """
    lines = await _RequestPath(plane, target, service).draw()
    return [part for line in lines for part in _wrapped(line, width)]


class _RequestPath:
    def __init__(self, plane: FleetObjects, target: Target, service: Tree) -> None:
        self._plane = plane
        self._target = target
        self._service = service
        self._routed = {
            str(each.get("name")): each
            for each in at_path(service, ".status.endpoints") or []
        }
        self._total = sum(int(each.get("weight", 0)) for each in self._routed.values())
        self._clusters: dict[str, Tree] = {}
        # Objects that an entry may select, by kind. They are read only if a selected
        # one gets no requests.
        self._selectable: dict[str, list[tuple[str, Tree]]] = {}

    async def draw(self) -> list[str]:
        gateway = await self._read("InferenceGateway", "", "default")
        address = at_path(gateway, ".status.address")
        shown_address = _at(gateway, " at", address, "address")
        place = f"InferenceGateway default{shown_address}"
        lines = [f"{_mark(gateway, address)} {place}{_why(gateway)}"]
        routing = condition(self._service, "RoutingReady")
        route = at_path(self._service, ".status.route")
        name = f"HTTPRoute {route}" if route else "no HTTPRoute"
        mark = _GOOD if routing.get("status") == "True" else _BAD
        # The message of a serving route can add a warning, such as a limit on its
        # endpoints.
        said = _why(self._service, "RoutingReady") or _because(
            str(routing.get("message") or "")
        )
        lines.append(
            f"{_STEP}{mark} {name} for /{self._target.namespace}/{self._target.name}/{said}"
        )
        lines += [
            f"{_STEP * 2}{line}"
            for line in (*_retries(self._service), *_timeouts(self._service))
        ]
        shown: list[str] = []
        for entry, labels_of in self._entries():
            text = _entry(entry, self._share(entry))
            lines.append(f"{_STEP * 2}{_entry_mark(entry)} {entry.get('name')}: {text}")
            named = [
                name
                for name, each in self._routed.items()
                if each.get("entry") == entry.get("name") and name not in shown
            ]
            shown += named
            lines += await self._endpoints(named)
            lines += await self._unrouted(entry, labels_of)
        # Endpoints whose entry the service does not report.
        others = [name for name in self._routed if name not in shown]
        return [*lines, *await self._endpoints(others)]

    def _entries(self) -> list[tuple[Tree, Mapping[str, str]]]:
        """Return the entries of the status with the labels that each selects by."""
        entries: Sequence[Tree] = at_path(self._service, ".status.entries") or []
        specs: Sequence[Tree] = at_path(self._service, ".spec.endpoints") or []
        selectors = [at_path(spec, ".selector.matchLabels") or {} for spec in specs]
        return list(
            zip(
                entries,
                [*selectors, *({} for _ in entries[len(selectors) :])],
                strict=False,
            )
        )

    def _share(self, entry: Tree) -> float | None:
        """Return the entry's share of all requests, or None if it is unknown."""
        weights = [
            int(each.get("weight", 0))
            for each in self._routed.values()
            if each.get("entry") == entry.get("name")
        ]
        if not (entry.get("routed") and self._total):
            return None
        return sum(weights) / self._total

    async def _endpoints(self, names: Sequence[str]) -> list[str]:
        lines: list[str] = []
        for name in names[:_ENDPOINTS_SHOWN]:
            lines += [f"{_STEP * 3}{line}" for line in await self._endpoint(name)]
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
        return [
            f"{_mark(replica)} ModelReplica {name}: {sent}{_why(replica)}",
            await self._cluster(cluster, host),
        ]

    async def _cluster(self, name: str, host: str) -> str:
        if name not in self._clusters:
            self._clusters[name] = await self._read("InferenceCluster", "", name)
        found = self._clusters[name]
        address = host or at_path(found, ".status.gateway.address")
        shown = _at(found, ", gateway", address, "gateway address")
        return f"{_STEP}{_mark(found, address)} InferenceCluster {name}{shown}{_why(found)}"

    async def _unrouted(self, entry: Tree, wanted: Mapping[str, str]) -> list[str]:
        """Return lines for the selected endpoints and replicas that get no requests."""
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
                if name in self._routed or (
                    kind == "ModelEndpoint"
                    and condition(tree, "Ready").get("status") == "True"
                ):
                    taken = True
                    continue
                lines.append(await self._waiting(kind, name, tree))
        if not lines and not matched and taken:
            lines = [[f"{_BAD} an earlier entry has all endpoints that it selects"]]
        elif not lines and not matched:
            lines = await self._without_replicas(wanted)
        shown = [
            f"{_STEP * 3}{line}" for part in lines[:_UNROUTED_SHOWN] for line in part
        ]
        return shown + _more(len(lines) - _UNROUTED_SHOWN)

    async def _without_replicas(self, wanted: Mapping[str, str]) -> list[list[str]]:
        """Return lines for the deployments whose replicas would have an entry's labels.

        Without such a deployment, say so in one line.
        """
        own = {key: value for key, value in wanted.items() if key not in _OF_REPLICAS}
        lines: list[list[str]] = []
        for name, tree in await self._of_kind("ModelDeployment"):
            has = (at_path(tree, ".spec.template.metadata.labels") or {}) | {
                keys.DEPLOYMENT: label_value(name)
            }
            if own and all(has.get(key) == value for key, value in own.items()):
                lines.append(
                    [self._deployment(name, tree, narrowed=len(own) < len(wanted))]
                )
        pairs = ",".join(f"{key}={value}" for key, value in sorted(wanted.items()))
        namespace = self._target.namespace
        return lines or [
            [f"{_BAD} nothing in namespace {namespace} has the labels {pairs}"]
        ]

    def _deployment(self, name: str, tree: Tree, *, narrowed: bool) -> str:
        """Return why a deployment has no replica with the labels.

        `narrowed` means that the labels also name a cluster or a replica index.
        """
        command = Target.of(
            BY_KIND["ModelDeployment"], self._target.namespace, name
        ).command
        count = int(at_path(tree, ".spec.replicas") or 0)
        if not count:
            scale = f"`modelplane scale {command} --replicas 1` starts one"
            return f"{_BAD} ModelDeployment {name}: 0 replicas ({scale})"
        ready = int(at_path(tree, ".status.replicas.ready") or 0)
        no_such = ", none of which has these labels" if narrowed else ""
        explained = f"`modelplane explain {command}` shows where they are"
        counted = f"{ready} of {count} replicas ready"
        return f"{_BAD} ModelDeployment {name}: {counted}{no_such} ({explained})"

    async def _waiting(self, kind: str, name: str, tree: Tree) -> list[str]:
        if kind == "ModelEndpoint":
            url = at_path(tree, ".spec.url") or ""
            # The reason names the URL itself.
            why = _why(tree) or _because("its backend is not published yet")
            place = "" if url in why else f", to {url}"
            return [f"{_BAD} ModelEndpoint {name}: no requests{place}{why}"]
        cluster = str(
            at_path(tree, ".spec.clusterName") or labels(tree).get(keys.CLUSTER) or ""
        )
        why = _why(tree) or _because("its endpoint is not published yet")
        lines = [f"{_BAD} ModelReplica {name}: no requests{why}"]
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
        """Read an object.

        Return one whose condition has the error if it cannot be read.
        """
        target = Target.of(BY_KIND[kind], namespace, name)
        try:
            return await self._plane.describe(target)
        except CommandFailed as error:
            message = error.message.removeprefix(f"{target.title} ")
            ready = {"type": "Ready", "status": "Unknown", "reason": ""}
            return {"status": {"conditions": [{**ready, "message": message}]}}


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _retries(service: Tree) -> list[str]:
    """Return a line about the retries of the gateway, if the spec requests any."""
    wanted = at_path(service, ".spec.retries")
    if wanted is None:
        return []
    ready = condition(service, "RetriesReady")
    codes = ", ".join(map(str, wanted.get("codes") or ()))
    after = f"nothing was sent, or after {codes}" if codes else "nothing was sent"
    times = int(wanted.get("attempts", 1))
    again = f"retried up to {times} time{'s' if times > 1 else ''} if {after}"
    if ready.get("status") == "True":
        return [f"{_GOOD} requests are {again}"]
    return [f"{_BAD} requests are not {again}{_why(service, 'RetriesReady')}"]


def _timeouts(service: Tree) -> list[str]:
    """Return a line about the timeouts of the gateway, if the spec requests any."""
    wanted = at_path(service, ".spec.timeouts")
    if wanted is None:
        return []
    times = [
        f"{what} after {wanted[field]}"
        for field, what in (
            ("request", "a request"),
            ("backendRequest", "an attempt at an endpoint"),
        )
        if wanted.get(field)
    ]
    if condition(service, "TimeoutsReady").get("status") == "True":
        return [f"{_GOOD} the gateway ends {', and '.join(times)}"]
    return [
        f"{_BAD} the gateway does not end {', or '.join(times)}{_why(service, 'TimeoutsReady')}"
    ]


def _entry_mark(entry: Tree) -> str:
    if entry.get("standby"):
        return _STANDBY
    return _GOOD if entry.get("routed") else _BAD


def _entry(entry: Tree, share: float | None) -> str:
    matched, ready = int(entry.get("matched") or 0), int(entry.get("ready") or 0)
    parts: Iterable[str] = (
        f"weight {entry.get('weight')}{f' ({share:.1%})' if share is not None else ''}",
        f"priority {entry['priority']}" if entry.get("priority") else "",
        f"{ready} of {matched} endpoints ready"
        if matched
        else "no endpoint is published",
        f"{entry.get('routed')} routed"
        if entry.get("routed") != ready and not entry.get("standby")
        else "",
        "on standby: entries before it serve" if entry.get("standby") else "",
    )
    return ", ".join(part for part in parts if part)


def _more(count: int) -> list[str]:
    return [f"{_STEP * 3}and {count} more"] if count > 0 else []


def _mark(tree: Tree, address: Any = "-") -> str:
    return (
        _GOOD if address and condition(tree, "Ready").get("status") == "True" else _BAD
    )


def _at(tree: Tree, before: str, address: Any, what: str) -> str:
    """Return the text about an address.

    The text is empty for an object that could not be read.
    """
    if address:
        return f"{before} {address}"
    return f", which has no {what}" if "metadata" in tree else ""


def _why(tree: Tree, condition_type: str = "Ready") -> str:
    """Return why a condition is not True, in brackets. Return "" if it is True."""
    found = condition(tree, condition_type)
    if found.get("status") == "True":
        return ""
    parts = (str(found.get("reason") or ""), str(found.get("message") or ""))
    return _because(": ".join(part for part in parts if part))


def _because(text: str) -> str:
    said = " ".join(text.split())
    return f" ({said})" if said else ""


def _wrapped(line: str, width: int) -> list[str]:
    """Break a line so that continuations start below its text, right of the mark."""
    if not width or len(line) <= width:
        return [line]
    text = line.lstrip(" ")
    indent = len(line) - len(text)
    # Do not break names, addresses and URLs: users copy them.
    return textwrap.wrap(
        text,
        max(width, indent + _WIDTH_MIN),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + len(_GOOD) + 1),
        break_long_words=False,
        break_on_hyphens=False,
    )
