"""The API of Filestore in the project: enabled, and left enabled, because others in the project may use it."""

from typing import Any

from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.handlers.calls import parameters
from activities.clouds.lifecycle.handler import ABSENT, Found, State, Wanted

_ENABLED = "ENABLED"


class ServiceHandler:
    """One API of the project."""

    def __init__(self, api: GoogleApi) -> None:
        self._api = api
        self._operation: Any | None = None
        self._left = False

    def look(self, wanted: Wanted) -> Found:
        """Read whether it is enabled. After `delete` it counts as absent, though it stays."""
        if self._left:
            return ABSENT
        name = str(parameters(wanted)["name"])
        if self._api.read("serviceusage", "get_service", {"name": name}).state.name == _ENABLED:
            return Found(State.READY, name, {"id": name})
        if self._operation is None:
            return ABSENT
        if self._api.is_done(self._operation, f"enable {wanted.object.name}"):
            self._operation = None
        return Found(State.PENDING, name, reason="is being enabled")

    def create(self, wanted: Wanted) -> None:
        """Enable it; to do so twice changes nothing."""
        self._operation = self._api.create("serviceusage", "enable_service", parameters(wanted))

    def update(self, wanted: Wanted, found: Found) -> None:
        """Change nothing: an API is enabled or not."""

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Leave it enabled."""
        del wanted, found
        self._left = True
