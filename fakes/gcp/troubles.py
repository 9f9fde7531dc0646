"""Troubles that last until they are ended, unlike the faults of single calls.

google = FakeProject()
end = begin("outage", google)
...  # every call fails
end()

A lasting trouble ends only when a person acts; its end is that person's step.
"""

from collections.abc import Callable, Mapping

from google.cloud import container_v1

from fakes.gcp.calls.faults import GcpFault, Invisible, Refuse, TooManyRequests
from fakes.gcp.fake import FakeProject
from fakes.gcp.services import leftovers
from fakes.gcp.services.compute.service import users
from fakes.gcp.services.gke import node_pools
from fakes.gcp.services.gke.capacity import MACHINES, REGIONS

End = Callable[[], None]
Trouble = Callable[[FakeProject], End]

_FOR_EVER = 1_000_000
# The first zone of each region.
_FIRST_ZONES = tuple(zones[0] for zones in REGIONS.values())


def begin(name: str, google: FakeProject) -> End:
    """Begin a trouble of `TROUBLES` or `LASTING`. Return the function that ends it."""
    with google.dispatcher.lock:
        end = {**TROUBLES, **LASTING}[name](google)

    def ended() -> None:
        with google.dispatcher.lock:
            end()

    return ended


def _while(*faults: GcpFault) -> Trouble:
    """Return the trouble of calls that meet faults until its end."""

    def trouble(google: FakeProject) -> End:
        script = google.dispatcher.world.script
        script.add(*faults)
        return lambda: script.drop(*faults)

    return trouble


def _no_machines(google: FakeProject) -> End:
    """All zones run out of machines with GPUs."""
    return _without_stock(
        google,
        [
            (zone, name)
            for zones in REGIONS.values()
            for zone in zones
            for name, machine in MACHINES.items()
            if machine.gpu
        ],
    )


def _zone_out(google: FakeProject) -> End:
    """One zone of each region has no machines, and the pools in it lose theirs."""
    places = [(zone, name) for zone in _FIRST_ZONES for name in MACHINES]
    end = _without_stock(google, places)
    status = container_v1.NodePool.Status
    world = google.dispatcher.world
    for name, pool in world.objects.items():
        if not isinstance(pool, container_v1.NodePool):
            continue
        zone = next((each for each in _FIRST_ZONES if each in pool.locations), "")
        if zone and pool.status == status.RUNNING:
            node_pools.break_down(pool, "GCE_STOCKOUT", f"Zone {zone} is unavailable.")
            pool.status = status.RUNNING_WITH_ERROR
            world.waiting_for_stock.add(name)
    return end


def _without_stock(google: FakeProject, places: list[tuple[str, str]]) -> End:
    capacity = google.capacity
    for place in places:
        capacity.set_stock(*place, 0)

    def end() -> None:
        for place in places:
            capacity.set_stock(*place, None)

    return end


def _labels_stripped(google: FakeProject) -> End:
    """A person removes the labels of all clusters."""
    for each in google.dispatcher.world.objects.values():
        if isinstance(each, container_v1.Cluster):
            each.resource_labels = {}
    return _nothing


def _subnets_deleted(google: FakeProject) -> End:
    """A person deletes the subnets that nothing uses. Google refuses the others."""
    world = google.dispatcher.world
    for name in [each for each in world.objects if "/subnetworks/" in each]:
        if next(users(world, name), None) is None:
            world.remove(name)
    return _nothing


def _pool_status(status: str) -> Trouble:
    """Return the trouble of running pools that get another status."""

    def trouble(google: FakeProject) -> End:
        broken = []
        for pool in google.dispatcher.world.objects.values():
            if not isinstance(pool, container_v1.NodePool):
                continue
            if pool.name == "system" or pool.status.name != "RUNNING":
                continue
            node_pools.break_down(pool, "GCE_STOCKOUT", "The nodes are gone.")
            pool.status = status
            broken.append(pool)

        def end() -> None:
            for pool in broken:
                if pool.status.name == status:
                    pool.status, pool.status_message = "RUNNING", ""
                    pool.conditions = []

        return end

    return trouble


def _small_pages(google: FakeProject) -> End:
    """Every page of a list has one item, and others follow."""
    world = google.dispatcher.world
    size, world.page_size = world.page_size, 1

    def end() -> None:
        world.page_size = size

    return end


def _zone_unreachable(google: FakeProject) -> End:
    """The objects of one zone of each region are missing in lists over all zones."""
    unreachable = google.dispatcher.world.unreachable
    unreachable.update(_FIRST_ZONES)
    return unreachable.clear


def _clock_skew(google: FakeProject) -> End:
    """The clock of the worker differs, so it gets no tokens."""
    world = google.dispatcher.world
    world.tokens.skewed = True
    world.tokens.expire_all()

    def end() -> None:
        world.tokens.skewed = False

    return end


def _instance_in_network(google: FakeProject) -> End:
    """A person creates a machine in the network of each cluster."""
    world = google.dispatcher.world
    names = []
    for cluster in _clusters(google):
        link = f"{leftovers.COMPUTE}/{world.root}/global/networks/{cluster.network}"
        name = f"{world.root}/zones/{cluster.locations[0]}/instances/bastion-{world.number()}"
        leftovers.put(world, name, networkInterfaces=[{"network": link}])
        names.append(name)
    return _removal(google, names)


def _balancer_of_users(google: FakeProject) -> End:
    """A Service of users has a load balancer, which the cluster did not delete."""
    world = google.dispatcher.world
    names = [
        name
        for cluster in _clusters(google)
        for name in leftovers.add(world, cluster, "user_balancer")
    ]
    return _removal(google, names)


def _removal(google: FakeProject, names: list[str]) -> End:
    """Return the function that removes these objects."""

    def end() -> None:
        for name in names:
            google.dispatcher.world.remove(name)

    return end


def _clusters(google: FakeProject) -> list[container_v1.Cluster]:
    objects = google.dispatcher.world.objects.values()
    return [each for each in objects if isinstance(each, container_v1.Cluster)]


def _nothing() -> None:
    """End a trouble that a person has caused once."""


TROUBLES: Mapping[str, Trouble] = {
    "no machines": _no_machines,
    "a zone out": _zone_out,
    "labels stripped": _labels_stripped,
    "subnets deleted": _subnets_deleted,
    "a role changed": _while(
        Refuse(
            call="container.*",
            times=_FOR_EVER,
            code="PERMISSION_DENIED",
            message='Required "container.clusters.get" permission(s) for "projects/p".',
        )
    ),
    "long inconsistency": _while(
        *(
            Invisible(call=call, times=_FOR_EVER, reads=20)
            for call in ("compute.*.insert", "iam.create_service_account")
        )
    ),
    "outage": _while(
        Refuse(
            times=_FOR_EVER,
            code="UNAVAILABLE",
            message="The service is currently unavailable.",
        )
    ),
    "throttling": _while(TooManyRequests(times=_FOR_EVER)),
    "small pages": _small_pages,
    "incomplete lists": _zone_unreachable,
    "clock skew": _clock_skew,
    "pools in ERROR": _pool_status("ERROR"),
    "pools with errors": _pool_status("RUNNING_WITH_ERROR"),
}

LASTING: Mapping[str, Trouble] = {
    "a machine of others": _instance_in_network,
    "a load balancer of users": _balancer_of_users,
}
