"""The times at which GKE may upgrade a cluster on its own."""

from typing import Annotated, Literal

from pydantic import Field

from api_types.resources.parts.base_types import Advice, MapKeys, ResourceModel, Whole

Weekday = Literal[
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"
]
_TIME = "must be a time in UTC such as 2026-12-24T00:00:00Z"
_UtcTime = Annotated[
    str,
    Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"),
    Advice(pattern=_TIME),
]


class GkeMaintenanceWindow(ResourceModel):
    """The hours in which GKE may upgrade control plane and nodes."""

    start_time: Annotated[
        str,
        Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$"),
        Advice(pattern="must be a time of day in UTC such as 22:00"),
    ]
    """Start in UTC, such as 22:00."""
    hours: Annotated[Whole, Field(ge=4, le=24)]
    """Length; 48 hours in 32 days are the least that GKE accepts."""
    days: Annotated[list[Weekday], Field(min_length=1, max_length=7)] | None = None
    """Days of the week; every day by default."""


class GkeMaintenanceExclusion(ResourceModel):
    """A period without upgrades, also within the window."""

    name: Annotated[
        str,
        Field(pattern=r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"),
        Advice(
            pattern="must have lower-case letters, digits and hyphens, a letter first, "
            "and at most 40 characters"
        ),
    ]
    """Name, unique in the cluster."""
    start: _UtcTime
    """Beginning in UTC."""
    end: _UtcTime
    """End in UTC."""
    scope: Literal["NoUpgrades", "NoMinorUpgrades", "NoMinorOrNodeUpgrades"] = (
        "NoUpgrades"
    )
    """The upgrades that wait; GKE limits the length of NoUpgrades."""


class GkeMaintenance(ResourceModel):
    """When GKE may upgrade the cluster. GKE decides on emergencies itself."""

    window: GkeMaintenanceWindow | None = None
    """Recurring window; Saturday and Sunday, 03:00 to 11:00 UTC, by default."""
    exclusions: (
        Annotated[
            list[GkeMaintenanceExclusion],
            Field(max_length=20),
            MapKeys(("name",), "exclusion"),
        ]
        | None
    ) = None
    """Periods without upgrades."""
