"""The Helm operations that activities use: a Protocol over plain values.

Failures are raised as the errors of `api_types.errors`:

- InvalidInput (the chart does not render with these values, or the API server rejects
  an object), NameConflict (an object belongs to another release or to nobody) and
  Unsupported (the worker has no usable helm): a retry does not help
- CredentialsInvalid (401), PermissionDenied (403): a person must act
- ClusterUnreachable, ChartUnavailable, ReleasePending, Throttled, ServerError: a retry
  may help
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from api_types.digests import content_hash
from api_types.messages.cluster_work import Connection


@dataclass(frozen=True)
class Chart:
    """One version of a chart.

    `repository` begins with `https://`, `http://` or `oci://`.
    """

    name: str
    repository: str
    version: str


@dataclass(frozen=True)
class Release:
    """A release to install.

    The values are a JSON tree and may contain secrets, so they are not shown. Without
    `with_definitions`, Helm leaves out the `crds/` directory of the chart. Helm 4 would
    otherwise apply it over existing definitions.
    """

    name: str
    namespace: str
    chart: Chart
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)
    with_definitions: bool = True


@dataclass(frozen=True)
class ReleaseState:
    """The state of a release on a cluster.

    It contains neither the manifest nor the values, which may contain secrets. `status`
    is Helm's: `deployed`, `failed`, `pending-install`, …. `chart` and `chart_version`
    are written as in the chart. `values_digest` is the result of the function
    `values_digest`.
    """

    name: str
    namespace: str
    revision: int
    status: str
    chart: str
    chart_version: str
    values_digest: str


def values_digest(values: Mapping[str, Any]) -> str:
    """Return a digest of values that is equal before and after Helm stores them.

    It has 64 hex digits. Helm stores every number as a 64-bit float: 1.0 is read back
    as 1, and a whole number above 2**53 may be rounded.
    """
    return content_hash(_as_stored(dict(values)))


def _as_stored(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _as_stored(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_stored(each) for each in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
        return int(number) if number.is_integer() else number
    return value


class HelmPort(Protocol):
    """The releases of one cluster, accessed with one credential."""

    async def ensure(self, release: Release, *, rewrite: bool = False) -> ReleaseState:
        """Install or upgrade a release, without waiting for its workloads.

        Writes nothing if chart, version (without a leading `v`) and the digest of the
        values equal those of the deployed release. With `rewrite` it writes anyway,
        which restores objects that were deleted by hand. Raises ReleasePending while
        another helm may still be working on the release. A release that has been
        pending for longer is recovered first.
        """
        ...

    async def status(self, name: str, namespace: str) -> ReleaseState | None:
        """Read a release. Returns None if it does not exist in the namespace."""
        ...

    async def uninstall(self, name: str, namespace: str) -> None:
        """Remove a release, without waiting for its pods.

        A release that does not exist counts as removed. Raises ReleasePending as
        `ensure` does.
        """
        ...

    async def render(self, release: Release) -> list[dict[str, Any]]:
        """Return the objects of a release without `crds/`.

        This does not contact the cluster. The objects may contain secrets, so they must
        not become an activity's result.
        """
        ...

    async def crds(self, chart: Chart) -> list[dict[str, Any]]:
        """Return every object in the `crds/` folders of a chart and its subcharts.

        Subcharts of every level are included, packed ones too.
        """
        ...

    async def releases(self, prefix: str = "mp-") -> list[ReleaseState]:
        """List the releases of all namespaces whose name begins with `prefix`.

        Releases of any status are listed, sorted by namespace and name.
        """
        ...


class HelmPool(Protocol):
    def at(self, connection: Connection) -> AbstractAsyncContextManager[HelmPort]:
        """Resolve the reference to the kubeconfig again, and return helm for it.

        Its files exist while the context is open. Entering raises CredentialsInvalid,
        PermissionDenied or Unsupported.
        """
        ...
