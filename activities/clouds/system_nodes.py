"""The nodes of the system pool, as the cluster itself has them: a cloud says of a pool that it is there, not that pods can start on it."""

from activities.clouds.graph import DesiredObject
from activities.clouds.owner import SYSTEM_POOL
from api_types.messages.clouds import SYSTEM_NODES

KEY = f"nodes/{SYSTEM_POOL}"


def system_nodes(*needs: str) -> DesiredObject:
    """Give what is Ready when a node of the system pool is. Nothing is called to make it: its pool does that."""
    return DesiredObject(KEY, SYSTEM_NODES, SYSTEM_POOL, needs, (), "a node that is Ready")
