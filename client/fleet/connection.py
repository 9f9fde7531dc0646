"""Which way a command reaches objects: through the front if one is named, else at Temporal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from api_types.settings import Settings
from client.configuration import front_named
from client.fleet.objects import Objects
from client.temporal.control_plane import control_plane
from client.through_front.access import read_access
from client.through_front.objects import front_objects


@asynccontextmanager
async def fleet_objects(settings: Settings) -> AsyncIterator[Objects]:
    """Reach the objects of the fleet while a command runs. Raises `Unreachable`, and `Refused` for settings that cannot be used."""
    if front_named():
        async with front_objects(read_access()) as through_front:
            yield through_front
        return
    async with control_plane(settings) as plane:
        yield plane
