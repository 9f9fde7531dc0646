"""Connects to the fleet, either through the front or directly to Temporal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from api_types.settings import Settings
from fleet_client.configuration import front_named
from fleet_client.objects import FleetObjects
from fleet_client.temporal.control_plane import control_plane
from fleet_client.through_front.access import read_access
from fleet_client.through_front.objects import front_objects


@asynccontextmanager
async def fleet_objects(settings: Settings) -> AsyncIterator[FleetObjects]:
    """Connect to the fleet while a command runs.

    Raise `Unreachable`, and `Refused` for settings that cannot be used.
    """
    if front_named():
        async with front_objects(read_access()) as through_front:
            yield through_front
        return
    async with control_plane(settings) as plane:
        yield plane
