"""The handler of Filestore's API in the project.

The API stays enabled after a deletion, because other users of the project may need it.
"""

from typing import Any

from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.handlers.calls import parameters
from activities.clouds.lifecycle.handler import (
    ABSENT,
    CloudObservation,
    ObjectWork,
    State,
)

_ENABLED = "ENABLED"


class ServiceHandler:
    def __init__(self, api: GoogleApi) -> None:
        self._api = api
        self._operation: Any | None = None
        self._left = False

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Read whether the API is enabled. After `delete` it counts as absent."""
        if self._left:
            return ABSENT
        name = str(parameters(wanted)["name"])
        service = self._api.read("serviceusage", "get_service", {"name": name})
        if service.state.name == _ENABLED:
            return CloudObservation(State.READY, name, {"id": name})
        if self._operation is None:
            return ABSENT
        if self._api.is_done(self._operation, f"enable {wanted.object.name}"):
            self._operation = None
        return CloudObservation(State.PENDING, name, reason="is being enabled")

    def create(self, wanted: ObjectWork) -> None:
        """Enable the API. This is idempotent."""
        self._operation = self._api.create(
            "serviceusage", "enable_service", parameters(wanted)
        )

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Do nothing: an API has no fields that could differ."""

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Leave the API enabled."""
        del wanted, found
        self._left = True
