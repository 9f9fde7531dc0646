"""Probes of a member. Path and port are those of the engine's profile."""

from typing import Annotated

from pydantic import Field

from api_types.resources.parts.base_types import ResourceModel, Whole

# The minimum and the maximum of each number.
STARTUP_SECONDS = (30, 21_600)
PERIOD_SECONDS = (5, 300)
TIMEOUT_SECONDS = (1, 120)
FAILURES = (1, 60)
NO_FOLLOWERS = (
    "followers listen on no port; set it on the Leader: if its liveness check "
    "fails, its whole group is restarted"
)

FIRST_RANK_ONLY = (
    "the liveness check queries only the first rank, and a container has no "
    "second probe: another hanging rank is not restarted; watch /health of "
    "each rank, and delete the pod"
)


class Liveness(ResourceModel):
    """The condition for a restart of a loaded engine that does not respond."""

    period_seconds: Annotated[
        Whole, Field(ge=PERIOD_SECONDS[0], le=PERIOD_SECONDS[1])
    ] = 30
    """Time between two checks."""
    timeout_seconds: Annotated[
        Whole, Field(ge=TIMEOUT_SECONDS[0], le=TIMEOUT_SECONDS[1])
    ] = 20
    """Timeout of a check, for which SGLang generates a token."""
    failure_threshold: Annotated[Whole, Field(ge=FAILURES[0], le=FAILURES[1])] = 6
    """Failed checks in a row after which the engine is restarted."""


class Probes(ResourceModel):
    """Time limit for loading, and the liveness check.

    An engine that does not load in time is restarted too.
    """

    startup_seconds: (
        Annotated[Whole, Field(ge=STARTUP_SECONDS[0], le=STARTUP_SECONDS[1])] | None
    ) = None
    """Time limit for loading.

    Absent: the setting `workloads.startupSeconds`, else a limit based on the size of
    the cache.
    """
    liveness: Liveness | None = None
    """Restarts a hanging engine; absent means never."""
