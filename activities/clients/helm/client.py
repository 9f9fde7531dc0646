"""`HelmPort` through pyhelm3: compare, recover what was left pending, then write (spec/stack-and-routing.md 1.2, 1.3).

Nothing here waits for workloads: a token outlives no long wait, two releases of the stack need each other, and a waiting helm cannot say
which part is behind.
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
from activities.clients.helm.command import OPERATION_SECONDS, TERM_SECONDS, HelmCommand, HelmFailed, environment
from activities.clients.helm.folders import WorkerFolder
from activities.clients.helm.kubeconfig_file import KubeconfigFile
from activities.clients.helm.limits import HelmLimits
from activities.clients.helm.port import Chart, HelmPort, Release, ReleaseState, values_digest
from activities.clients.kubernetes.kubeconfig import Access
from api_types.clock import utc_now
from api_types.errors import InvalidInput, ReleasePending, ServerError
from api_types.text.reader import Unreadable, read_trees

_DEPLOYED = "deployed"
_REMOVED_FIRST = frozenset({"pending-install", "uninstalling"})
_ROLLED_BACK_FIRST = frozenset({"pending-upgrade", "pending-rollback"})
_PENDING = _REMOVED_FIRST | _ROLLED_BACK_FIRST
# What a revision must have been to go back to it, best first.
_GOOD = (_DEPLOYED, "superseded", "failed")
_RELEASE_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,51}[a-z0-9])?")
_LISTED_MAX = 10_000
# One more for each other helm that removes the same release at this moment.
_UNINSTALLS_MAX = 4
# The longest of Helm's has 16.
_STATUS_MAX = 80
_CLOCKS_DIFFER = timedelta(minutes=5)
# Most helms whose worker was lost end by themselves within seconds.
_LOOK_AGAIN = timedelta(seconds=10)
# One line each: a release that shows its manifest would show secrets.
_ABOUT = """{{.Release.Chart.Metadata.Name}}
{{.Release.Chart.Metadata.Version}}
{{.Release.Version}}
{{.Release.Info.Status}}
{{.Release.Info.LastDeployed.Unix}}
{{.Release.Info.Deleted.Unix}}
"""


@dataclass(frozen=True)
class HelmTools:
    """What the helm clients of one worker share. `memory` holds kubeconfigs; the times are for tests."""

    helm: Helm
    charts: ChartStore
    memory: WorkerFolder
    limits: HelmLimits
    operation_seconds: int = OPERATION_SECONDS
    term_seconds: float = TERM_SECONDS


@contextlib.asynccontextmanager
async def helm_client(access: Access, cluster: str, *, tools: HelmTools) -> AsyncIterator[HelmPort]:
    """Give helm for a cluster; its kubeconfig and its home exist while the context is open. Raises CredentialsInvalid."""
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
    """A release as it is, and since when it is so."""

    state: ReleaseState
    since: datetime


class HelmClient(HelmPort):
    """The releases of one cluster."""

    def __init__(self, cluster: str, command: HelmCommand, kubeconfig: KubeconfigFile, tools: HelmTools) -> None:
        self._cluster = cluster
        self._command = command
        self._kubeconfig = kubeconfig
        self._helm = tools.helm
        self._charts = tools.charts
        # A helm whose time is up is asked to end before it is killed.
        self._pending_after = timedelta(seconds=tools.operation_seconds + tools.term_seconds)

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
                # Without it, helm takes empty values for "those of the last revision".
                reset_values=True,
                # A field that someone changed by hand is put back; an object of another release is never taken.
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
        arguments = ["template", release.name, str(archive), "--namespace", release.namespace, "--values", "-"]
        with self._failures(release.name, release.namespace, "template"):
            output = await self._command.run(arguments, json.dumps(dict(release.values)).encode())
        try:
            trees = await asyncio.to_thread(read_trees, output.decode())
        except (Unreadable, UnicodeDecodeError) as error:
            raise InvalidInput(f"{self._doing(release.name, release.namespace, 'template')}: {type(error).__name__}") from None
        return [tree for tree, _ in trees if isinstance(tree, dict)]

    async def crds(self, chart: Chart) -> list[dict[str, Any]]:
        """See `HelmPort`."""
        return await self._charts.crds(self._helm.path, chart)

    async def releases(self, prefix: str = "mp-") -> list[ReleaseState]:
        """See `HelmPort`."""
        # From 4 on, helm lists every status unless some are named.
        every = [] if self._helm.applies_on_server else ["--all"]
        arguments = ["list", "--all-namespaces", f"--filter=^{re.escape(prefix)}", f"--max={_LISTED_MAX}", "--output", "json", *every]
        with self._failures("", "", "list"):
            listed = json.loads(await self._command.run(arguments))
            names = [(str(each["name"]), str(each["namespace"])) for each in listed]
        found = await self._found_all(names)
        return sorted((each.state for each in found if each), key=lambda state: (state.namespace, state.name))

    # --- steps ----------------------------------------------------------------------------------------------------------------------------

    async def _found(self, name: str, namespace: str) -> _Found | None:
        """Read a release, without its manifest."""
        of_release = [name, "--namespace", namespace]
        try:
            with self._failures(name, namespace, "get"):
                about = (await self._command.run(["get", "all", *of_release, "--template", _ABOUT])).decode().splitlines()
                chart, version, revision, status, deployed, deleted = about
                values = json.loads(await self._command.run(["get", "values", *of_release, "--revision", revision, "--output", "json"]))
                digest = values_digest(values or {})
                state = ReleaseState(name, namespace, int(revision), status[:_STATUS_MAX], chart, version, digest)
                # The time of the deletion is zero, long before all others, until a release is being uninstalled.
                return _Found(state, datetime.fromtimestamp(max(int(deployed), int(deleted)), UTC))
        except _NotFound:
            return None

    async def _found_all(self, names: Iterable[tuple[str, str]]) -> list[_Found | None]:
        """Read releases; when one cannot be read, nothing runs any more that would need the kubeconfig."""
        try:
            async with asyncio.TaskGroup() as reading:
                tasks = [reading.create_task(self._found(*each)) for each in names]
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _recover(self, found: _Found) -> None:
        """Bring a release into a state that can be upgraded, or away (H5, cases 5 and 6)."""
        self._check_abandoned(found)
        state = found.state
        if state.status in _REMOVED_FIRST:
            await self._remove(state.name, state.namespace, wait=True)
            return
        # One that was removed meanwhile is installed.
        with contextlib.suppress(_NotFound), self._failures(state.name, state.namespace, "rollback"):
            history = json.loads(
                await self._command.run(["history", state.name, "--namespace", state.namespace, "--max", "256", "--output", "json"])
            )
            revision = _last_good(history) or state.revision
            await self._command.roll_back(state.name, state.namespace, revision, on_server=self._helm.applies_on_server)

    def _check_abandoned(self, found: _Found) -> None:
        """Raise ReleasePending while the helm that left the status may still be running."""
        left = self._pending_after - (utc_now() - found.since)
        # Whoever may write the Secret of a release chooses its time: no helm that runs now has begun in the future.
        if timedelta(0) < left <= self._pending_after + _CLOCKS_DIFFER:
            recovered_at = found.since + self._pending_after
            state = found.state
            raise ReleasePending(
                f"{self._doing(state.name, state.namespace, state.status)} since {found.since:%H:%M:%S} UTC: another helm may still be "
                f"working on it; it is recovered from {recovered_at:%H:%M:%S} UTC on",
                after=min(left, _LOOK_AGAIN),
            )

    async def _remove(self, name: str, namespace: str, *, wait: bool) -> None:
        with contextlib.suppress(_NotFound), self._failures(name, namespace, "uninstall"):
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
            raise failures.of_cluster(error.stderr, self._doing(name, namespace, verb), self._kubeconfig.secrets()) from None
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            # The text of the error may quote a release.
            raise ServerError(f"{self._doing(name, namespace, verb)}: helm gave no usable answer ({type(error).__name__})") from None

    def _doing(self, name: str, namespace: str, verb: str) -> str:
        return f"cluster {self._cluster}: " + (f"release {namespace}/{name}: {verb}" if name else verb)


class _NotFound(Exception):
    """There is no such release."""


def _check_name(name: str) -> None:
    if not _RELEASE_NAME.fullmatch(name):
        raise InvalidInput(f"{name[:80]!r} is not the name of a release: at most 53 lower-case letters, digits and '-'")


def _is_as_wanted(state: ReleaseState, release: Release) -> bool:
    return (state.status, state.chart, _normalized(state.chart_version), state.values_digest) == (
        _DEPLOYED,
        release.chart.name,
        _normalized(release.chart.version),
        values_digest(release.values),
    )


def _normalized(version: str) -> str:
    return version.removeprefix("v")


def _last_good(history: list[Mapping[str, Any]]) -> int | None:
    """Choose the revision to go back to; None if none was ever good."""
    for status in _GOOD:
        if found := [int(each["revision"]) for each in history if each["status"] == status]:
            return max(found)
    return None


def _written_state(written: Mapping[str, Any]) -> ReleaseState:
    """Keep of what helm reports of a release what may leave an activity (H11)."""
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
