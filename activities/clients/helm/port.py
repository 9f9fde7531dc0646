"""What activities ask of Helm: a Protocol over plain values (spec/stack-and-routing.md 1.1).

Failures are raised as the errors of `api_types.errors` (section 1.4, rulings 81 to 84):

* InvalidInput (the chart does not render with these values, or the API server refuses an object), NameConflict (an object belongs to
  another release or to nobody), Unsupported (the worker has no usable helm): a retry does not help
* CredentialsInvalid (401), PermissionDenied (403): a person must act
* ClusterUnreachable, ChartUnavailable, ReleasePending, Throttled, ServerError: a retry may help
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from api_types.digests import content_hash
from api_types.messages.cluster_work import Connection


@dataclass(frozen=True)
class Chart:
    """One version of a chart; `repository` begins with `https://` (or `http://`), or with `oci://`."""

    name: str
    repository: str
    version: str


@dataclass(frozen=True)
class Release:
    """What shall be on a cluster. The values are a tree of JSON and may hold secrets, so they are not shown."""

    name: str
    namespace: str
    chart: Chart
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ReleaseState:
    """What is on a cluster. Neither manifest nor values, which may hold secrets (H11).

    `status` is Helm's: `deployed`, `failed`, `pending-install`, …. `chart` and `chart_version` are as the chart writes them; the digest of
    the values is that of `values_digest`.
    """

    name: str
    namespace: str
    revision: int
    status: str
    chart: str
    chart_version: str
    values_digest: str


def values_digest(values: Mapping[str, Any]) -> str:
    """Give 64 hex digits over values, equal before and after Helm has stored them.

    Helm keeps every number as a 64-bit float: 1.0 comes back as 1, and a whole number above 2**53 as its neighbour.
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
    """The releases of one cluster, under one credential."""

    async def ensure(self, release: Release, *, rewrite: bool = False) -> ReleaseState:
        """Install or upgrade a release, without waiting for its workloads.

        Writes nothing when chart, version (a leading `v` is ignored) and digest of the values are those of the deployed release, but with
        `rewrite`, which puts back what was deleted of it by hand.
        Raises ReleasePending while another helm may still be working on it; a release that was left pending for longer is recovered first.
        """
        ...

    async def status(self, name: str, namespace: str) -> ReleaseState | None:
        """Read a release; None if there is none of this name in the namespace."""
        ...

    async def uninstall(self, name: str, namespace: str) -> None:
        """Remove a release; one that does not exist is removed. Does not wait for pods (H9). Raises ReleasePending as `ensure` does."""
        ...

    async def render(self, release: Release) -> list[dict[str, Any]]:
        """Give the objects of a release without `crds/` and without asking the cluster. They may hold secrets: not for a result."""
        ...

    async def crds(self, chart: Chart) -> list[dict[str, Any]]:
        """Give every object in the `crds/` folders of a chart and of its subcharts at every level, packed ones included (H7)."""
        ...

    async def releases(self, prefix: str = "mp-") -> list[ReleaseState]:
        """List the releases of all namespaces whose name begins with `prefix`, whatever their status, by namespace and name."""
        ...


class HelmPool(Protocol):
    """Helm for all clusters."""

    def at(self, connection: Connection) -> AbstractAsyncContextManager[HelmPort]:
        """Resolve the reference to the kubeconfig again and give helm for it; its files exist while the context is open.

        Entering raises CredentialsInvalid, PermissionDenied or Unsupported.
        """
        ...
