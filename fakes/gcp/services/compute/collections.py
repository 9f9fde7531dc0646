"""The collections of the compute API, and their paths."""

import re
from dataclasses import dataclass

from fakes.gcp.calls.errors import CloudError

GLOBAL = (
    "addresses",
    "backendServices",
    "firewalls",
    "forwardingRules",
    "healthChecks",
    "httpHealthChecks",
    "networkEndpointGroups",
    "networks",
    "routes",
    "targetHttpProxies",
    "targetTcpProxies",
    "urlMaps",
)
REGIONAL = (
    "addresses",
    "backendServices",
    "forwardingRules",
    "healthChecks",
    "networkEndpointGroups",
    "routers",
    "subnetworks",
    "targetPools",
)
ZONAL = (
    "disks",
    "instanceGroups",
    "instanceGroupManagers",
    "instances",
    "networkEndpointGroups",
)
READ_ONLY = ("acceleratorTypes", "machineTypes")
"""Collections of a zone that `places.py` answers."""


@dataclass(frozen=True)
class Path:
    """The parts of a path.

    `scope` is `global`, `regions/<region>`, `zones/<zone>` or `aggregated`; `verb`
    follows the name.
    """

    project: str
    scope: str
    collection: str
    name: str = ""
    verb: str = ""

    @property
    def parent(self) -> str:
        """Return the full name of the collection's parent, such as `projects/p/global`."""
        return (
            f"projects/{self.project}/{self.scope}"
            if self.scope
            else f"projects/{self.project}"
        )

    @property
    def full_name(self) -> str:
        """Return the full name of the object, or of the collection."""
        return "/".join(
            part for part in (self.parent, self.collection, self.name) if part
        )

    @property
    def service(self) -> str:
        """Return the name of the service for faults and the ledger.

        An example is `compute.backend_services`.
        """
        return f"compute.{snake(self.collection or 'projects')}"


_PATH = re.compile(
    r"/compute/v1/projects/([^/]+)"
    r"(?:/(global|aggregated|regions/[^/]+|zones/[^/]+))?"
    r"(?:/([A-Za-z]+))?(?:/([^/]+))?(?:/([^/]+))?"
)
_PLACE = re.compile(r"/compute/v1/projects/([^/]+)/(regions|zones)(?:/([^/]+))?")


def snake(text: str) -> str:
    """Return a name of the API's JSON as the Python clients write it."""
    return re.sub(r"([A-Z])", r"_\1", text).lower()


def parse(path: str) -> Path:
    """Parse a path.

    Raise CloudError NOT_FOUND for a path that the API does not have.
    """
    if place := _PLACE.fullmatch(path):
        return Path(place[1], "", place[2], place[3] or "")
    found = _PATH.fullmatch(path)
    if found is None:
        raise CloudError("NOT_FOUND", f"The fake has no path {path}.")
    project, scope, collection, name, verb = (part or "" for part in found.groups())
    known = {"global": GLOBAL, "aggregated": REGIONAL + ZONAL + READ_ONLY}.get(
        scope, ()
    )
    if scope.startswith("regions/"):
        known = REGIONAL
    if scope.startswith("zones/"):
        known = ZONAL + READ_ONLY
    if (scope or collection) and collection not in {*known, "operations"}:
        raise CloudError(
            "NOT_FOUND", f"The fake has no collection {collection} in {scope}."
        )
    return Path(project, scope, collection, name, verb)
