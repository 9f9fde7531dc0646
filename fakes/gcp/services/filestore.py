"""Filestore instances.

Each has a peering with a network, which cannot be deleted before.
"""

from google.cloud import filestore_v1
from google.longrunning import operations_pb2

from fakes.gcp.calls.errors import CloudError, already_exists, not_found
from fakes.gcp.calls.faults import OperationFails
from fakes.gcp.calls.script import first_of
from fakes.gcp.services.service_usage import message
from fakes.gcp.services.world import World


def list_instances(
    world: World, request: filestore_v1.ListInstancesRequest
) -> filestore_v1.ListInstancesResponse:
    """Return a page of the instances of a location, or of all with `-`."""
    prefix = (
        request.parent.removesuffix("-")
        if request.parent.endswith("/-")
        else f"{request.parent}/instances/"
    )
    names = [
        name
        for name in world.below(prefix)
        if isinstance(world.objects[name], filestore_v1.Instance)
        and name.split("/")[3] not in world.unreachable
    ]
    start, size = int(request.page_token or 0), request.page_size or world.page_size
    token = str(start + size) if start + size < len(names) else ""
    page = [world.objects[name] for name in names[start : start + size]]
    return filestore_v1.ListInstancesResponse(
        instances=page,
        next_page_token=token,
        unreachable=[
            f"{world.root}/locations/{zone}" for zone in sorted(world.unreachable)
        ],
    )


def get_instance(
    world: World, request: filestore_v1.GetInstanceRequest
) -> filestore_v1.Instance:
    """Return an instance."""
    world.operations.advance(request.name)
    found = world.visible(request.name)
    if found is None:
        raise not_found(request.name)
    return found


def create_instance(
    world: World, request: filestore_v1.CreateInstanceRequest
) -> operations_pb2.Operation:
    """Start to create an instance, as the CSI driver does for a claim."""
    name = f"{request.parent}/instances/{request.instance_id}"
    if name in world.objects:
        raise already_exists(name)
    instance = filestore_v1.Instance(request.instance)
    instance.name, instance.state = name, filestore_v1.Instance.State.CREATING
    world.objects[name] = instance
    answer = filestore_v1.Instance(instance)
    answer.state = filestore_v1.Instance.State.READY

    def finish() -> None:
        instance.state = filestore_v1.Instance.State.READY

    parent = request.parent
    return message(
        world.operations.start(
            parent, "create", name, finish, answer=filestore_v1.Instance.pb(answer)
        )
    )


def delete_instance(
    world: World, request: filestore_v1.DeleteInstanceRequest
) -> operations_pb2.Operation:
    """Start to delete an instance."""
    found = world.objects.get(request.name)
    if found is None:
        raise not_found(request.name)
    if running := world.operations.running_on(request.name):
        running.advance()
        raise CloudError(
            "FAILED_PRECONDITION",
            f"Instance {request.name} is busy with another operation.",
        )
    found.state = filestore_v1.Instance.State.DELETING
    fails = first_of(world.met, OperationFails)

    def finish() -> CloudError | None:
        if fails and not fails.effect:
            found.state = filestore_v1.Instance.State.ERROR
        else:
            world.remove(request.name)
        return fails.error() if fails else None

    return message(
        world.operations.start(
            request.name.partition("/instances/")[0], "delete", request.name, finish
        )
    )
