"""Connects to the fleet, either through the front or directly to Temporal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from api_types.settings import Settings
from fleet_client.configuration import front_named
from fleet_client.objects import FleetObjects


@asynccontextmanager
async def fleet_objects(settings: Settings) -> AsyncIterator[FleetObjects]:
    """Connect to the fleet while a command runs.

    Raise `Unreachable`, and `Refused` for settings that cannot be used.
    """
    # Import the way that is used: temporalio and httpx are slow to import.
    if front_named():
        from fleet_client.through_front.access import read_access  # noqa: PLC0415
        from fleet_client.through_front.objects import front_objects  # noqa: PLC0415

        async with front_objects(read_access()) as through_front:
            yield through_front
        return
    from fleet_client.temporal.control_plane import control_plane  # noqa: PLC0415

    async with control_plane(settings) as plane:
        yield plane
