"""The bill of a planned cluster: its fixed costs, its nodes, and unknown prices.

Costs of usage depend on the users of the cluster: they are named and not added.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from activities.clouds.desired.graph import DesiredObject, Machines
from client.manifests.price_file import Prices
from client.planning.list_prices import (
    ADDRESS,
    CONTROL_PLANE,
    FILE_STORAGE,
    HOURS_PER_MONTH,
    LOAD_BALANCER,
    NAT_GATEWAY,
    price_of,
)
from fleet_client.refs.tree import Tree

_MILLI = Decimal(1000)
_CAPACITY_BLOCK = "CAPACITY_BLOCK"
_ITEMS = {
    "Cluster": CONTROL_PLANE,
    "NatGateway": NAT_GATEWAY,
    "ElasticIP": ADDRESS,
}
_FILESTORE_GIB_MIN = 1024
# The Service of the gateway, which the serving stack creates.
_GATEWAY = "gateway"
_LEFT_OUT = {
    "EKS": (
        "disks of nodes",
        "traffic, also through the NAT gateway and the load balancer",
        "reads and writes of files",
        "logs",
        "load balancers of users",
        "taxes, discounts and free tiers",
    ),
    "GKE": (
        "disks and public addresses of nodes",
        "traffic, also through the load balancer",
        "logs",
        "load balancers of users",
        "taxes, discounts and free tiers",
    ),
}


@dataclass(frozen=True)
class _Item:
    """One line of the bill. `usd` is the price of one per hour, None if unknown."""

    item: str
    object: str
    start: int
    most: int
    usd: Decimal | None
    source: str
    dated: str = ""


def costs_of(
    provider: str, region: str, objects: Sequence[DesiredObject], given: Prices | None
) -> Tree:
    """Return the costs of a cluster's objects in US dollars, as text.

    `given` are prices of machines from a file, which take precedence over list prices.
    """
    items = list(_items(provider, region, objects, given or {}))
    unknown = [each for each in items if each.usd is None]
    prices = [each.usd or Decimal(0) for each in items]
    start = most = Decimal(0)
    for each, usd in zip(items, prices, strict=True):
        start += each.start * usd
        most += each.most * usd
    return {
        "items": [_line(each) for each in items],
        "perHour": _span(start, most, Decimal(1)),
        "perMonth": _span(start, most, Decimal(HOURS_PER_MONTH)),
        "unknown": list(dict.fromkeys(f"{each.item} in {region}" for each in unknown)),
        "usage": list(_usage(provider, region, objects)),
        "leftOut": list(_LEFT_OUT.get(provider, ())),
    }


def _items(
    provider: str, region: str, objects: Sequence[DesiredObject], given: Prices
) -> Iterator[_Item]:
    for each in objects:
        if each.kind in _ITEMS:
            yield _listed(provider, region, _ITEMS[each.kind], each.key)
        if each.machines is not None:
            yield _nodes(provider, each, each.machines, given)
    if objects:
        yield _listed(provider, region, LOAD_BALANCER, _GATEWAY)


def _listed(provider: str, region: str, item: str, key: str) -> _Item:
    price = price_of(provider, item, region)
    if price is None:
        return _Item(item, key, 1, 1, None, "")
    return _Item(item, key, 1, 1, price.usd, price.source, price.dated)


def _nodes(
    provider: str, each: DesiredObject, machines: Machines, given: Prices
) -> _Item:
    counts = machines.type, each.key, machines.start, machines.most
    if _is_block(each):
        name = f"{machines.type} in a capacity block"
        return _Item(name, *counts[1:], Decimal(0), "paid when the block was bought")
    milli = given.get((machines.region, machines.type))
    if milli is not None:
        return _Item(*counts, milli / _MILLI, "the file of --prices")
    price = price_of(provider, machines.type, machines.region)
    if price is None:
        return _Item(*counts, None, "")
    return _Item(*counts, price.usd, price.source, price.dated)


def _is_block(each: DesiredObject) -> bool:
    return any(
        call.parameters.get("capacityType") == _CAPACITY_BLOCK for call in each.calls
    )


def _usage(
    provider: str, region: str, objects: Sequence[DesiredObject]
) -> Iterator[str]:
    """Yield the costs of file storage, which depend on the caches."""
    price = price_of(provider, FILE_STORAGE, region)
    unit = f"{price.usd} per GiB and month" if price else "an unknown price"
    kinds = {each.kind for each in objects}
    if provider == "EKS" and "FileSystem" in kinds:
        yield f"files of caches on EFS, without a minimum size: {unit}"
    if provider == "GKE" and "StorageClass" in kinds:
        least = (
            f", so at least {price.usd * _FILESTORE_GIB_MIN:.2f} per month"
            if price
            else ""
        )
        yield (
            f"each cache has a Filestore instance of at least {_FILESTORE_GIB_MIN} GiB: "
            f"{unit}{least}"
        )


def _line(each: _Item) -> Tree:
    tree: Tree = {
        "item": each.item,
        "object": each.object,
        "start": each.start,
        "most": each.most,
    }
    if each.usd is None:
        return tree | {"perHour": None, "perMonth": None}
    start, most = each.start * each.usd, each.most * each.usd
    return tree | {
        "price": f"{each.usd}",
        "perHour": _span(start, most, Decimal(1)),
        "perMonth": _span(start, most, Decimal(HOURS_PER_MONTH)),
        "source": each.source,
        "dated": each.dated,
    }


def _span(start: Decimal, most: Decimal, factor: Decimal) -> Tree:
    return {"start": f"{start * factor:.3f}", "most": f"{most * factor:.3f}"}
