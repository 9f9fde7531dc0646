"""What other hands do at the cloud between two calls: Google's own upgrades, other owners, deletions by hand."""

from google.cloud import container_v1

from testbed.clouds.gcp.services import leftovers
from testbed.clouds.gcp.services.operations import Operation
from testbed.clouds.gcp.services.world import World

FOREIGN = "made by another owner"


def cluster_of(name: str) -> str:
    """Give the full name of the cluster that an object is part of, or is; of other objects the name itself."""
    project, _, rest = name.partition("/locations/")
    location, _, below = rest.partition("/clusters/")
    return f"{project}/locations/{location}/clusters/{below.partition('/')[0]}" if below else name


def begin_operation(world: World, target: str, kind: str, reads: int) -> Operation:
    """Let Google begin an operation of its own on a cluster, which holds it for so many reads."""
    cluster = cluster_of(target)
    return world.operations.start(cluster.partition("/clusters/")[0], kind, cluster, holds=cluster, reads=reads)


def vanish(world: World, target: str) -> None:
    """Delete an object with all its parts, whatever runs on it; with a cluster goes what GKE made for it."""
    world.operations.finish(target)
    if isinstance(cluster := world.objects.get(target), container_v1.Cluster):
        leftovers.remove_own_firewall(world, cluster)
    world.remove(target)


def disown(world: World, target: str) -> None:
    """Take the marks of its owner from an object that was just made, so that it is one of another owner."""
    world.operations.finish(target)
    world.requests = {key: name for key, name in world.requests.items() if key[1] != target}
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
