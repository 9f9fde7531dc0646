"""`HelmPort` through pyhelm3: compare, recover pending releases, then write.

No method waits for workloads: a token may expire during a long wait, two releases of
the stack need each other, and a waiting helm cannot report which object is not ready.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from activities.clients.helm import failures
from activities.clients.helm.binary import Helm
from activities.clients.helm.charts import ChartStore
from activities.clients.helm.command import (
    OPERATION_SECONDS,
    TERM_SECONDS,
    HelmCommand,
    HelmFailed,
    environment,
)
from activities.clients.helm.folders import WorkerFolder
from activities.clients.helm.kubeconfig_file import KubeconfigFile
from activities.clients.helm.limits import HelmLimits
from activities.clients.helm.port import (
    Chart,
    HelmPort,
    Release,
    ReleaseState,
    values_digest,
)
from activities.clients.kubernetes.kubeconfig import ApiServerAccess
from api_types.clock import utc_now
from api_types.errors import InvalidInput, ReleasePending, ServerError
from api_types.text.reader import Unreadable, read_trees

_DEPLOYED = "deployed"
_REMOVED_FIRST = frozenset({"pending-install", "uninstalling"})
_ROLLED_BACK_FIRST = frozenset({"pending-upgrade", "pending-rollback"})
_PENDING = _REMOVED_FIRST | _ROLLED_BACK_FIRST
# The statuses of a revision to which a release may be rolled back, in order of
# preference.
_GOOD = (_DEPLOYED, "superseded", "failed")
_RELEASE_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,51}[a-z0-9])?")
_LISTED_MAX = 10_000
# One more for each other helm that removes the same release at the same time.
_UNINSTALLS_MAX = 4
# The longest status of Helm has 16 characters.
_STATUS_MAX = 80
_CLOCKS_DIFFER = timedelta(minutes=5)
# Most helm processes of a lost worker end by themselves within seconds.
_LOOK_AGAIN = timedelta(seconds=10)
# Helm fields, one per line. A template with the manifest would show secrets.
_ABOUT = """{{.Release.Chart.Metadata.Name}}
{{.Release.Chart.Metadata.Version}}
{{.Release.Version}}
{{.Release.Info.Status}}
{{.Release.Info.LastDeployed.Unix}}
{{.Release.Info.Deleted.Unix}}
"""


@dataclass(frozen=True)
class HelmTools:
    """The parts that the helm clients of one worker share.

    `memory` is the folder for kubeconfigs. Tests set the times.
    """

    helm: Helm
    charts: ChartStore
    memory: WorkerFolder
    limits: HelmLimits
    operation_seconds: int = OPERATION_SECONDS
    term_seconds: float = TERM_SECONDS


@contextlib.asynccontextmanager
async def helm_client(
    access: ApiServerAccess, cluster: str, *, tools: HelmTools
) -> AsyncIterator[HelmPort]:
    """Yield helm for a cluster.

    Its kubeconfig and home exist while the context is open.

    Raises CredentialsInvalid.
    """
    with tools.memory.part() as folder:
        kubeconfig = KubeconfigFile(folder, access, cluster)
        await kubeconfig.refresh()
        command = HelmCommand(
            tools.helm.path,
            environment(folder),
            tools.limits,
            cluster=cluster,
            kubeconfig=kubeconfig.path,
            prepare=kubeconfig.refresh,
            operation_seconds=tools.operation_seconds,
            term_seconds=tools.term_seconds,
        )
        yield HelmClient(cluster, command, kubeconfig, tools)


@dataclass(frozen=True)
class _Found:
    """The state of a release, and the time since when it has that state."""

    state: ReleaseState
    since: datetime


class HelmClient(HelmPort):
    def __init__(
        self,
        cluster: str,
        command: HelmCommand,
        kubeconfig: KubeconfigFile,
        tools: HelmTools,
    ) -> None:
        self._cluster = cluster
        self._command = command
        self._kubeconfig = kubeconfig
        self._helm = tools.helm
        self._charts = tools.charts
        # A helm that exceeds its time is terminated, and killed later.
        self._pending_after = timedelta(
            seconds=tools.operation_seconds + tools.term_seconds
        )

    async def ensure(self, release: Release, *, rewrite: bool = False) -> ReleaseState:
        """See `HelmPort`."""
        _check_name(release.name)
        found = await self._found(release.name, release.namespace)
        if found and found.state.status in _PENDING:
            await self._recover(found)
            found = await self._found(release.name, release.namespace)
        if found and not rewrite and _is_as_wanted(found.state, release):
            return found.state
        archive = await self._charts.archive(self._helm.path, release.chart)
        with self._failures(release.name, release.namespace, "upgrade"):
            written = await self._command.install_or_upgrade(
                release.name,
                str(archive),
                cast("dict[str, Any]", release.values),
                namespace=release.namespace,
                # Otherwise helm would reuse the last revision's values for empty ones.
                reset_values=True,
                skip_crds=not release.with_definitions,
                # The option reverts fields that somebody changed by hand. It never
                # takes over objects of another release.
                force_conflicts=self._helm.applies_on_server,
                server_side="true" if self._helm.applies_on_server else None,
            )
        return _written_state(written)

    async def status(self, name: str, namespace: str) -> ReleaseState | None:
        """See `HelmPort`."""
        _check_name(name)
        found = await self._found(name, namespace)
        return found.state if found else None

    async def uninstall(self, name: str, namespace: str) -> None:
        """See `HelmPort`."""
        _check_name(name)
        found = await self._found(name, namespace)
        if found is None:
            return
        if found.state.status in _PENDING:
            self._check_abandoned(found)
        await self._remove(name, namespace, wait=False)

    async def render(self, release: Release) -> list[dict[str, Any]]:
        """See `HelmPort`."""
        _check_name(release.name)
        archive = await self._charts.archive(self._helm.path, release.chart)
        arguments = [
            "template",
            release.name,
            str(archive),
            "--namespace",
            release.namespace,
            "--values",
            "-",
        ]
        with self._failures(release.name, release.namespace, "template"):
            output = await self._command.run(
                arguments, json.dumps(dict(release.values)).encode()
            )
        try:
            trees = await asyncio.to_thread(read_trees, output.decode())
        except (Unreadable, UnicodeDecodeError) as error:
            raise InvalidInput(
                f"{self._doing(release.name, release.namespace, 'template')}: "
                f"{type(error).__name__}"
            ) from None
        return [tree for tree, _ in trees if isinstance(tree, dict)]

    async def crds(self, chart: Chart) -> list[dict[str, Any]]:
        """See `HelmPort`."""
        return await self._charts.crds(self._helm.path, chart)

    async def releases(self, prefix: str = "mp-") -> list[ReleaseState]:
        """See `HelmPort`."""
        # Since version 4, helm lists every status unless some are named.
        every = [] if self._helm.applies_on_server else ["--all"]
        arguments = [
            "list",
            "--all-namespaces",
            f"--filter=^{re.escape(prefix)}",
            f"--max={_LISTED_MAX}",
            "--output",
            "json",
            *every,
        ]
        with self._failures("", "", "list"):
            listed = json.loads(await self._command.run(arguments))
            names = [(str(each["name"]), str(each["namespace"])) for each in listed]
        found = await self._found_all(names)
        return sorted(
            (each.state for each in found if each),
            key=lambda state: (state.namespace, state.name),
        )

    async def _found(self, name: str, namespace: str) -> _Found | None:
        """Read a release without its manifest."""
        of_release = [name, "--namespace", namespace]
        try:
            with self._failures(name, namespace, "get"):
                about = await self._command.run(
                    ["get", "all", *of_release, "--template", _ABOUT]
                )
                chart, version, revision, status, deployed, deleted = (
                    about.decode().splitlines()
                )
                arguments = ["get", "values", *of_release, "--revision", revision]
                values = json.loads(
                    await self._command.run([*arguments, "--output", "json"])
                )
                digest = values_digest(values or {})
                state = ReleaseState(
                    name,
                    namespace,
                    int(revision),
                    status[:_STATUS_MAX],
                    chart,
                    version,
                    digest,
                )
                # Without a deletion the time is zero, which is earlier than all other
                # times.
                return _Found(
                    state, datetime.fromtimestamp(max(int(deployed), int(deleted)), UTC)
                )
        except _NotFound:
            return None

    async def _found_all(self, names: Iterable[tuple[str, str]]) -> list[_Found | None]:
        """Read releases.

        If a read fails, stop the other reads before the kubeconfig is removed.
        """
        try:
            async with asyncio.TaskGroup() as reading:
                tasks = [reading.create_task(self._found(*each)) for each in names]
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _recover(self, found: _Found) -> None:
        """Roll back a pending release, or remove it if it has no good revision."""
        self._check_abandoned(found)
        state = found.state
        if state.status in _REMOVED_FIRST:
            await self._remove(state.name, state.namespace, wait=True)
            return
        # A release that was removed in the meantime is installed.
        with (
            contextlib.suppress(_NotFound),
            self._failures(state.name, state.namespace, "rollback"),
        ):
            of_release = [state.name, "--namespace", state.namespace]
            history = json.loads(
                await self._command.run(
                    ["history", *of_release, "--max", "256", "--output", "json"]
                )
            )
            revision = _last_good(history) or state.revision
            await self._command.roll_back(
                state.name,
                state.namespace,
                revision,
                on_server=self._helm.applies_on_server,
            )

    def _check_abandoned(self, found: _Found) -> None:
        """Raise ReleasePending while the helm of a pending release may still run."""
        left = self._pending_after - (utc_now() - found.since)
        # Anyone who can write the Secret of a release can choose its time. A time in
        # the future is not from a running helm.
        if timedelta(0) < left <= self._pending_after + _CLOCKS_DIFFER:
            recovered_at = found.since + self._pending_after
            state = found.state
            raise ReleasePending(
                f"{self._doing(state.name, state.namespace, state.status)} since "
                f"{found.since:%H:%M:%S} UTC: another helm may still be working on it; "
                f"it is recovered from {recovered_at:%H:%M:%S} UTC on",
                after=min(left, _LOOK_AGAIN),
            )

    async def _remove(self, name: str, namespace: str, *, wait: bool) -> None:
        with (
            contextlib.suppress(_NotFound),
            self._failures(name, namespace, "uninstall"),
        ):
            for others in reversed(range(_UNINSTALLS_MAX)):
                try:
                    await self._command.uninstall(name, namespace=namespace, wait=wait)
                except HelmFailed as error:
                    if not (others and failures.is_removed_meanwhile(error.stderr)):
                        raise
                else:
                    break

    @contextlib.contextmanager
    def _failures(self, name: str, namespace: str, verb: str) -> Iterator[None]:
        try:
            yield
        except HelmFailed as error:
            if failures.is_not_found(error.stderr):
                raise _NotFound from None
            raise failures.of_cluster(
                error.stderr,
                self._doing(name, namespace, verb),
                self._kubeconfig.secrets(),
            ) from None
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ) as error:
            # The text of the error may quote a release.
            raise ServerError(
                f"{self._doing(name, namespace, verb)}: helm returned invalid output "
                f"({type(error).__name__})"
            ) from None

    def _doing(self, name: str, namespace: str, verb: str) -> str:
        return f"cluster {self._cluster}: " + (
            f"release {namespace}/{name}: {verb}" if name else verb
        )


class _NotFound(Exception):
    """The release does not exist."""


def _check_name(name: str) -> None:
    if not _RELEASE_NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:80]!r} is not the name of a release: "
            "at most 53 lower-case letters, digits and '-'"
        )


def _is_as_wanted(state: ReleaseState, release: Release) -> bool:
    return (
        state.status,
        state.chart,
        _normalized(state.chart_version),
        state.values_digest,
    ) == (
        _DEPLOYED,
        release.chart.name,
        _normalized(release.chart.version),
        values_digest(release.values),
    )


def _normalized(version: str) -> str:
    return version.removeprefix("v")


def _last_good(history: list[Mapping[str, Any]]) -> int | None:
    """Return the revision to roll back to, or None if none was ever good."""
    for status in _GOOD:
        found = [int(each["revision"]) for each in history if each["status"] == status]
        if found:
            return max(found)
    return None


def _written_state(written: Mapping[str, Any]) -> ReleaseState:
    """Return the fields of helm's report that may leave an activity: no secrets."""
    about = written["chart"]["metadata"]
    return ReleaseState(
        name=written["name"],
        namespace=written["namespace"],
        revision=int(written["version"]),
        status=written["info"]["status"],
        chart=about["name"],
        chart_version=about["version"],
        values_digest=values_digest(written.get("config") or {}),
    )
