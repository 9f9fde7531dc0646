"""Probes of a member, as its owner may choose them; where they ask is fixed: GET /health on the engine's port."""

from typing import Annotated

from pydantic import Field

from api_types.resources.parts.base_types import ResourceModel, Whole

# The least and the most of each number.
STARTUP_SECONDS = (30, 21_600)
PERIOD_SECONDS = (5, 300)
TIMEOUT_SECONDS = (1, 120)
FAILURES = (1, 60)
NO_FOLLOWERS = "followers listen on no port; set it on the Leader: when its liveness fails, its whole group is restarted"

FIRST_RANK_ONLY = (
    "liveness asks the first rank alone, and a container has no second probe: another rank that hangs is not restarted; "
    "watch /health of each rank, and delete the pod"
)


class Liveness(ResourceModel):
    """When an engine that has loaded is restarted because it does not answer."""

    period_seconds: Annotated[Whole, Field(ge=PERIOD_SECONDS[0], le=PERIOD_SECONDS[1])] = 30
    """Time between two questions."""
    timeout_seconds: Annotated[Whole, Field(ge=TIMEOUT_SECONDS[0], le=TIMEOUT_SECONDS[1])] = 20
    """How long an answer may take; SGLang generates a token for it."""
    failure_threshold: Annotated[Whole, Field(ge=FAILURES[0], le=FAILURES[1])] = 6
    """Questions in a row without an answer after which it is restarted."""


class Probes(ResourceModel):
    """How long an engine may load, and when it is hung. An engine that does not load in time is restarted too."""

    startup_seconds: Annotated[Whole, Field(ge=STARTUP_SECONDS[0], le=STARTUP_SECONDS[1])] | None = None
    """The longest time to load. Absent: the setting `workloads.startupSeconds`, else a time by the size of the cache."""
    liveness: Liveness | None = None
    """Restarts an engine that hangs; absent means never."""
