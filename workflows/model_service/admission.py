"""Which specs of a service are refused because a worker of before has refused them: a replay has to do what was done."""

from collections.abc import Callable
from typing import Any

from api_types.validation.manifests import InvalidManifest
from workflows.numbered_patch import NumberedPatch

# Histories of before know no timeouts.
TIMEOUTS_PATCH = "service-timeouts"
_NO_TIMEOUTS = (
    "unknown field; Traefik has no timeouts per route, and a time for the whole request would cut streams of tokens: "
    "set timeouts in the client; spec.retries sends requests again that no endpoint has taken (docs/routing.md)"
)


class TimeoutsAdmission:
    """Admits timeouts under a patch, another one for each spec."""

    def __init__(self, title: str, patched: Callable[[str], bool]) -> None:
        self._title = title
        self._patch = NumberedPatch(TIMEOUTS_PATCH, patched)

    def check(self, document: dict[str, Any]) -> None:
        """Refuse an admitted manifest with timeouts, in the words of before, where a worker of before did. Raises InvalidManifest."""
        if "timeouts" not in document["spec"] or self._patch.is_on():
            return
        raise InvalidManifest.of(self._title, "spec.timeouts", _NO_TIMEOUTS)
