"""The handlers of networks and subnets, which have operations of Compute Engine."""

import uuid
from typing import Any

from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.failures import GcpErrorInfo, failure
from activities.clouds.gke.handlers.calls import foreign, parameters
from activities.clouds.lifecycle.handler import CloudObservation, ObjectWork, State

# For about an hour, a repeated request id returns its old operation, even if that
# failed. This many other ids are tried.
_REPLAYS_MAX = 8
_RUNNING_MAX = 500
_DONE = "DONE"
_DELETE = "delete"


class _ComputeHandler:
    """The common part of networks and subnets.

    `kind` is the argument that names one.
    """

    kind: str
    service: str
    operations: str

    def __init__(self, api: GoogleApi) -> None:
        self._api = api
        self._operation = ""

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the object by name, and its running operations."""
        given = parameters(wanted)
        running = self._own_operation(given, wanted)
        found = self._api.find(
            self.service, "get", {**_place(given), self.kind: _resource(given)["name"]}
        )
        if found is None:
            running = running or self._running(given)
            if running is not None:
                return CloudObservation(
                    _state_of(running), reason=f"operation {running.name} runs"
                )
            return CloudObservation(State.ABSENT, uncertain=True)
        if found.description != _resource(given)["description"]:
            return foreign(found.description)
        if running is None and not wanted.known_id:
            running = self._running(given)
        if running is not None:
            return CloudObservation(
                _state_of(running), found.name, reason=f"operation {running.name} runs"
            )
        return CloudObservation(State.READY, found.name, {"id": found.name})

    def create(self, wanted: ObjectWork) -> None:
        """Insert the object, with a request id for this object and epoch."""
        given, token = parameters(wanted), wanted.token
        for _ in range(_REPLAYS_MAX):
            operation = self._api.create(
                self.service, "insert_unary", {**given, "request_id": token}
            )
            self._operation = operation.name if operation is not None else ""
            if (
                operation is None
                or operation.status.name != _DONE
                or not operation.error.errors
            ):
                return
            # The response is from an earlier call with this id, whose attempt failed.
            # The id would not return anything else.
            token = str(uuid.uuid5(uuid.UUID(token), operation.name))

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Do nothing. `look` never reports a difference.

        Ranges of a subnet never change.
        """

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Start the deletion. Raises Dependency while the network has users."""
        del found
        given = parameters(wanted)
        operation = self._api.delete(
            self.service,
            "delete_unary",
            {**_place(given), self.kind: _resource(given)["name"]},
        )
        self._operation = operation.name if operation is not None else ""

    def _own_operation(self, given: dict[str, Any], wanted: ObjectWork) -> Any | None:
        """Return the operation that this handler started, while it runs.

        Raises the error of a failed operation.
        """
        if not self._operation:
            return None
        operation = self._api.find(
            self.operations, "get", {**_place(given), "operation": self._operation}
        )
        if operation is not None and operation.status.name != _DONE:
            return operation
        self._operation = ""
        if operation is not None and operation.error.errors:
            first = operation.error.errors[0]
            deleting = operation.operation_type == _DELETE
            verb = "delete" if deleting else "create"
            doing = f"{verb} {wanted.object.kind} {wanted.object.name}"
            raise failure(
                GcpErrorInfo("", f"{first.code}: {first.message}"),
                doing,
                deleting=deleting,
            )
        return None

    def _running(self, given: dict[str, Any]) -> Any | None:
        """Return an operation on the object that an earlier attempt started."""
        end = f"/{_resource(given)['name']}"
        request = {
            **_place(given),
            "filter": f'(status != "{_DONE}") (operationType = "insert")',
            "max_results": _RUNNING_MAX,
        }
        listed = self._api.every(self.operations, "list", request)
        return next(
            (
                each
                for each in listed
                if each.status.name != _DONE and each.target_link.endswith(end)
            ),
            None,
        )


class NetworkHandler(_ComputeHandler):
    kind = "network"
    service = "compute.networks"
    operations = "compute.global_operations"


class SubnetworkHandler(_ComputeHandler):
    kind = "subnetwork"
    service = "compute.subnetworks"
    operations = "compute.region_operations"


def _state_of(operation: Any) -> State:
    return State.DELETING if operation.operation_type == _DELETE else State.PENDING


def _place(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("project", "region") if name in given}


def _resource(given: dict[str, Any]) -> dict[str, Any]:
    resource: dict[str, Any] = (
        given.get("network_resource") or given["subnetwork_resource"]
    )
    return resource
