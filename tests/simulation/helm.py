"""Helm in memory: its effect on the objects of a cluster, and the state after it was killed."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from activities.clients.helm.command import OPERATION_SECONDS
from activities.clients.helm.port import (
    Chart,
    HelmPool,
    HelmPort,
    Release,
    ReleaseState,
    values_digest,
)
from activities.cluster_objects.cluster_api import ObjectId
from activities.stack.releases import RELEASE_NAME, RELEASE_NAMESPACE
from api_types.errors import (
    ChartUnavailable,
    ClusterUnreachable,
    NameConflict,
    ReleasePending,
    ServerError,
)
from api_types.messages.cluster_work import Connection
from tests.simulation import charts
from tests.simulation.cluster import ApiServer
from tests.simulation.fields import Json, copied
from tests.simulation.reconciling import key_of
from tests.simulation.store import ObjectKey

HELM = "helm"
_SLOW = (1.0, 40.0)
_LATENCY = (0.2, 2.0)
_PENDING = ("pending-install", "pending-upgrade", "uninstalling")


@dataclass
class _Revision:
    chart: Chart
    digest: str
    since: float
    objects: list[Json] = field(default_factory=list)


class Reachable(Protocol):
    """Where clusters are found by their connection."""

    async def server(self, connection: Connection) -> ApiServer:
        """Resolve the references and return the API server. Raises CredentialsInvalid."""
        ...


class HelmInMemory:
    """The releases of all clusters: they outlive workers. `clock` gives seconds."""

    def __init__(
        self,
        pause: Callable[[float, float], Awaitable[None]],
        strikes: Callable[[str, str], bool],
        clock: Callable[[], float],
    ) -> None:
        self.pause, self.strikes, self.clock = pause, strikes, clock
        # By the uid of the Secret in which Helm keeps a revision.
        self.revisions: dict[str, _Revision] = {}


class HelmOfWorker(HelmPool):
    """The helm of one worker."""

    def __init__(self, source: Reachable, helm: HelmInMemory) -> None:
        self._source, self._helm = source, helm

    @contextlib.asynccontextmanager
    async def at(self, connection: Connection) -> AsyncIterator[HelmPort]:
        """See `HelmPool`."""
        yield ClusterHelm(await self._source.server(connection), self._helm)


class ClusterHelm(HelmPort):
    """The releases of one cluster."""

    def __init__(self, server: ApiServer, helm: HelmInMemory) -> None:
        self._server, self._helm = server, helm
        self._store = server.store

    async def ensure(self, release: Release, *, rewrite: bool = False) -> ReleaseState:
        """See `HelmPort`."""
        await self._reach(f"release {release.namespace}/{release.name}: upgrade")
        found = self._newest(release.name, release.namespace)
        if found is not None and self._state(found).status in _PENDING:
            found = self._recovered(found)
        if found is not None and not rewrite and self._is_as_wanted(found, release):
            return self._state(found)
        if self._helm.strikes("helm.error", release.name):
            raise ChartUnavailable(f"chart {release.chart.name} {release.chart.version}: no answer")
        objects = [
            self._owned(each, release)
            for each in charts.rendered(release.chart.name, release.namespace)
        ]
        self._check_owners(objects, release)
        status = "pending-install" if found is None else "pending-upgrade"
        secret = self._write(release, (self._state(found).revision if found else 0) + 1, status)
        await self._helm.pause(*_SLOW)
        if self._helm.strikes("helm.error", release.name):
            self._mark(secret, "failed")
            raise ServerError(f"release {release.name}: context deadline exceeded")
        if self._store.get(key_of(secret)) is None:
            raise ServerError(f"release {release.name}: its record is gone")
        self._install(release, objects, found)
        self._helm.revisions[secret["metadata"]["uid"]].objects = objects
        if found is not None:
            self._mark(found, "superseded")
        self._mark(secret, "deployed")
        return self._state(secret)

    async def status(self, name: str, namespace: str) -> ReleaseState | None:
        """See `HelmPort`."""
        await self._reach(f"release {namespace}/{name}: status")
        found = self._newest(name, namespace)
        return None if found is None else self._state(found)

    async def uninstall(self, name: str, namespace: str) -> None:
        """See `HelmPort`."""
        await self._reach(f"release {namespace}/{name}: uninstall")
        found = self._newest(name, namespace)
        if found is not None and self._state(found).status in (
            "pending-install",
            "pending-upgrade",
        ):
            found = self._recovered(found)
        if found is None:
            return
        self._mark(found, "uninstalling")
        await self._helm.pause(*_LATENCY)
        known = self._helm.revisions.get(found["metadata"]["uid"])
        for item in reversed(known.objects if known else []):
            key = key_of(item)
            live = self._store.get(key)
            if live is not None and _release_of(live) == (namespace, name):
                self._store.delete(key, propagation="Background")
        if known:
            charts.removed(self._server, known.chart.name)
        for secret in self._revisions(name, namespace):
            self._store.delete(key_of(secret))

    async def render(self, release: Release) -> list[dict[str, Any]]:
        """See `HelmPort`."""
        await self._helm.pause(*_LATENCY)
        return charts.rendered(release.chart.name, release.namespace)

    async def crds(self, chart: Chart) -> list[dict[str, Any]]:
        """See `HelmPort`."""
        await self._helm.pause(*_LATENCY)
        return charts.definitions(chart.name)

    async def releases(self, prefix: str = "mp-") -> list[ReleaseState]:
        """See `HelmPort`."""
        await self._reach("list releases")
        names = {
            (each["metadata"]["namespace"], each["metadata"]["labels"]["name"])
            for each in self._secrets()
        }
        found = [
            self._newest(name, namespace)
            for namespace, name in sorted(names)
            if name.startswith(prefix)
        ]
        return [self._state(each) for each in found if each is not None]

    # Inside

    async def _reach(self, doing: str) -> None:
        await self._helm.pause(*_LATENCY)
        if self._server.mood != "answers":
            await self._helm.pause(1.0, 30.0)
            raise ClusterUnreachable(f"cluster {self._server.name}: {doing}: cluster unreachable")

    def _secrets(self) -> list[Json]:
        found = self._store.find("", "Secret")
        return [
            each for each in found if (each["metadata"].get("labels") or {}).get("owner") == HELM
        ]

    def _revisions(self, name: str, namespace: str) -> list[Json]:
        found = [
            each
            for each in self._secrets()
            if each["metadata"]["namespace"] == namespace
            and each["metadata"]["labels"]["name"] == name
        ]
        return sorted(found, key=lambda each: int(each["metadata"]["labels"]["version"]))

    def _newest(self, name: str, namespace: str) -> Json | None:
        found = self._revisions(name, namespace)
        return found[-1] if found else None

    def _state(self, secret: Json) -> ReleaseState:
        metadata = (self._store.get(key_of(secret)) or secret)["metadata"]
        known = self._helm.revisions[metadata["uid"]]
        return ReleaseState(
            name=metadata["labels"]["name"],
            namespace=metadata["namespace"],
            revision=int(metadata["labels"]["version"]),
            status=metadata["labels"]["status"],
            chart=known.chart.name,
            chart_version=known.chart.version.removeprefix("v"),
            values_digest=known.digest,
        )

    def _is_as_wanted(self, secret: Json, release: Release) -> bool:
        state = self._state(secret)
        return (state.status, state.chart, state.chart_version, state.values_digest) == (
            "deployed",
            release.chart.name,
            release.chart.version.removeprefix("v"),
            values_digest(release.values),
        )

    def _recovered(self, secret: Json) -> Json | None:
        """Return the revision to continue from. Raises ReleasePending while helm may run."""
        state, known = self._state(secret), self._helm.revisions[secret["metadata"]["uid"]]
        if self._helm.clock() - known.since < OPERATION_SECONDS + 20:
            raise ReleasePending(
                f"release {state.namespace}/{state.name}: another operation is in progress "
                f"({state.status})"
            )
        self._store.delete(key_of(secret))
        return self._newest(state.name, state.namespace)

    def _write(self, release: Release, revision: int, status: str) -> Json:
        if self._store.get(ObjectKey("", "Namespace", "", release.namespace)) is None:
            self._store.create(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace}},
                HELM,
            )
        marks = {"owner": HELM, "name": release.name, "version": str(revision), "status": status}
        metadata = {
            "name": f"sh.helm.release.v1.{release.name}.v{revision}",
            "namespace": release.namespace,
            "labels": marks,
        }
        secret = self._store.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata,
                "type": "helm.sh/release.v1",
            },
            HELM,
        )
        if secret is None:
            raise ReleasePending(
                f"release {release.namespace}/{release.name}: cannot re-use a name that is still "
                "in use"
            )
        self._helm.revisions[secret["metadata"]["uid"]] = _Revision(
            release.chart, values_digest(release.values), self._helm.clock()
        )
        return secret

    def _mark(self, secret: Json, status: str) -> None:
        def change(content: Json) -> Json:
            metadata = content["metadata"]
            return {
                **content,
                "metadata": {**metadata, "labels": {**metadata["labels"], "status": status}},
            }

        self._store.edit(key_of(secret), change, HELM)
        self._helm.revisions[secret["metadata"]["uid"]].since = self._helm.clock()

    def _owned(self, item: Json, release: Release) -> Json:
        metadata = item["metadata"]
        notes = {
            **metadata.get("annotations", {}),
            RELEASE_NAME: release.name,
            RELEASE_NAMESPACE: release.namespace,
        }
        marks = {**metadata.get("labels", {}), "app.kubernetes.io/managed-by": "Helm"}
        return {**item, "metadata": {**metadata, "annotations": notes, "labels": marks}}

    def _check_owners(self, objects: list[Json], release: Release) -> None:
        for item in objects:
            live = self._store.get(key_of(item))
            if live is not None and _release_of(live) != (release.namespace, release.name):
                raise NameConflict(
                    f"release {release.name}: {ObjectId.of(item)}: invalid ownership metadata"
                )

    def _install(self, release: Release, objects: list[Json], before: Json | None) -> None:
        if before is None:
            for definition in charts.definitions(release.chart.name):
                self._store.create(copied(definition), HELM)
        for item in objects:
            self._store.apply(copied(item), HELM)
        known = self._helm.revisions.get(before["metadata"]["uid"]) if before else None
        wanted = {key_of(item) for item in objects}
        for item in known.objects if known else ():
            if key_of(item) not in wanted:
                self._store.delete(key_of(item), propagation="Background")
        charts.installed(self._server, release.chart.name)


def _release_of(item: Mapping[str, Any]) -> tuple[str, str]:
    notes = item["metadata"].get("annotations") or {}
    return notes.get(RELEASE_NAMESPACE, ""), notes.get(RELEASE_NAME, "")
