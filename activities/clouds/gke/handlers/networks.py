"""Networks and subnets: Compute Engine over HTTP, whose answers are operations of their own."""

import uuid
from typing import Any

from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.failures import Signal, failure
from activities.clouds.gke.handlers.calls import foreign, parameters
from activities.clouds.lifecycle.handler import Found, State, Wanted

# A request id gives its old operation for about an hour, also one that failed; so often another id is tried.
_REPLAYS_MAX = 8
_RUNNING_MAX = 500
_DONE = "DONE"
_DELETE = "delete"


class _ComputeHandler:
    """What networks and subnets have in common; `kind` is the name of the argument that names one."""

    kind: str
    service: str
    operations: str

    def __init__(self, api: GoogleApi) -> None:
        self._api = api
        self._operation = ""

    def look(self, wanted: Wanted) -> Found:
        """Find it by name, and what runs on it."""
        given = parameters(wanted)
        running = self._own_operation(given, wanted)
        found = self._api.find(self.service, "get", {**_place(given), self.kind: _resource(given)["name"]})
        if found is None:
            running = running or self._running(given)
            if running is not None:
                return Found(_state_of(running), reason=f"operation {running.name} runs")
            return Found(State.ABSENT, uncertain=True)
        if found.description != _resource(given)["description"]:
            return foreign(found.description)
        if running is None and not wanted.known_id:
            running = self._running(given)
        if running is not None:
            return Found(_state_of(running), found.name, reason=f"operation {running.name} runs")
        return Found(State.READY, found.name, {"id": found.name})

    def create(self, wanted: Wanted) -> None:
        """Insert it, with a request id of this object and epoch."""
        given, token = parameters(wanted), wanted.token
        for _ in range(_REPLAYS_MAX):
            operation = self._api.create(self.service, "insert_unary", {**given, "request_id": token})
            self._operation = operation.name if operation is not None else ""
            if operation is None or operation.status.name != _DONE or not operation.error.errors:
                return
            # The answer to an earlier call with this id: that attempt failed, and would be all that the id ever gives.
            token = str(uuid.uuid5(uuid.UUID(token), operation.name))

    def update(self, wanted: Wanted, found: Found) -> None:
        """Change nothing: `look` never finds a difference. Ranges of a subnet that exists stay as they are."""

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Begin to delete it. Raises Dependency while something is in it."""
        del found
        given = parameters(wanted)
        operation = self._api.delete(self.service, "delete_unary", {**_place(given), self.kind: _resource(given)["name"]})
        self._operation = operation.name if operation is not None else ""

    def _own_operation(self, given: dict[str, Any], wanted: Wanted) -> Any | None:
        """Give the operation that this handler began while it runs. Raises its error when it failed."""
        if not self._operation:
            return None
        operation = self._api.find(self.operations, "get", {**_place(given), "operation": self._operation})
        if operation is not None and operation.status.name != _DONE:
            return operation
        self._operation = ""
        if operation is not None and operation.error.errors:
            first = operation.error.errors[0]
            deleting = operation.operation_type == _DELETE
            doing = f"{'delete' if deleting else 'create'} {wanted.object.kind} {wanted.object.name}"
            raise failure(Signal("", f"{first.code}: {first.message}"), doing, deleting=deleting)
        return None

    def _running(self, given: dict[str, Any]) -> Any | None:
        """Find an operation on it that an earlier attempt began."""
        end = f"/{_resource(given)['name']}"
        request = {**_place(given), "filter": f'(status != "{_DONE}") (operationType = "insert")', "max_results": _RUNNING_MAX}
        listed = self._api.every(self.operations, "list", request)
        return next((each for each in listed if each.status.name != _DONE and each.target_link.endswith(end)), None)


class NetworkHandler(_ComputeHandler):
    """The VPC of a cluster."""

    kind = "network"
    service = "compute.networks"
    operations = "compute.global_operations"


class SubnetworkHandler(_ComputeHandler):
    """The subnet of a cluster."""

    kind = "subnetwork"
    service = "compute.subnetworks"
    operations = "compute.region_operations"


def _state_of(operation: Any) -> State:
    return State.DELETING if operation.operation_type == _DELETE else State.PENDING


def _place(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("project", "region") if name in given}


def _resource(given: dict[str, Any]) -> dict[str, Any]:
    resource: dict[str, Any] = given.get("network_resource") or given["subnetwork_resource"]
    return resource
