"""Changes by others between two calls.

They are Google's upgrades, other owners, and manual deletions.
"""

from google.cloud import container_v1

from fakes.gcp.services import leftovers
from fakes.gcp.services.operations import Operation
from fakes.gcp.services.world import World

FOREIGN = "made by another owner"


def cluster_of(name: str) -> str:
    """Return the full name of an object's cluster, or the name itself of other objects."""
    project, _, rest = name.partition("/locations/")
    location, _, below = rest.partition("/clusters/")
    return (
        f"{project}/locations/{location}/clusters/{below.partition('/')[0]}"
        if below
        else name
    )


def begin_operation(world: World, target: str, kind: str, reads: int) -> Operation:
    """Start an operation of Google on a cluster, which locks it for so many reads."""
    cluster = cluster_of(target)
    return world.operations.start(
        cluster.partition("/clusters/")[0], kind, cluster, holds=cluster, reads=reads
    )


def vanish(world: World, target: str) -> None:
    """Delete an object with all its parts and operations.

    A cluster's GKE objects go with it.
    """
    world.operations.finish(target)
    if isinstance(cluster := world.objects.get(target), container_v1.Cluster):
        leftovers.remove_own_firewall(world, cluster)
    world.remove(target)


def disown(world: World, target: str) -> None:
    """Remove the owner's marks from a new object, so that it belongs to another owner."""
    world.operations.finish(target)
    world.requests = {
        key: name for key, name in world.requests.items() if key[1] != target
    }
    found = world.objects[target]
    if isinstance(found, dict):
        found["description"] = FOREIGN
        found.pop("labels", None)
        return
    for labels in ("resource_labels", "labels"):
        if hasattr(found, labels):
            setattr(found, labels, {"owner": "another"})
    if hasattr(found, "config"):
        found.config.resource_labels = {"owner": "another"}
    if hasattr(found, "description"):
        found.description = FOREIGN
