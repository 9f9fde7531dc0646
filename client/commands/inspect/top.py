"""`modelplane top`: the use of the fleet's capacity, as the scheduler charges it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from api_types.clock import now_ms
from client.commands import options
from client.output.formats import ReportFormat, as_json, as_yaml
from client.output.tables import columns
from fleet_client.configuration import load_settings
from fleet_client.placement.live_fleet import LiveFleet, read_live
from fleet_client.placement.usage import (
    namespace_rows,
    pool_rows,
    queue_rows,
    quota_rows,
    row,
    with_words,
)
from fleet_client.refs.tree import Tree
from fleet_client.temporal.control_plane import control_plane
from scheduler import PoolCapacityUse, pool_use

_WHY = (
    "it counts the scheduler's ledger; `modelplane get ic -o yaml` shows the pools of "
    "clusters through the front"
)
# The amounts of a pool that add up to those of its cluster.
_AMOUNTS = ("total", "used", "held", "free", "wasted", "idle_devices")

top = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help=(
        "Show the used, held, free and wasted capacity of the fleet, in nodes or "
        "devices: the unit that the scheduler charges. HELD belongs to replicas that "
        "are starting or being removed. WASTED belongs to no replica and takes none; "
        "WHY names the reason. Where devices are charged, FREE counts the devices for "
        "pods of the largest size that still fits. IDLE-DEVICES are on charged "
        "nodes, and no pod claims them."
    ),
)
NoHeaders = Annotated[
    bool, typer.Option("--no-headers", help="Print the table without its titles.")
]
Output = Annotated[
    ReportFormat, typer.Option("--output", "-o", help="Form of the output.")
]


@top.command("clusters")
def clusters(
    output: Output = ReportFormat.TABLE, no_headers: NoHeaders = False
) -> None:
    """Show the capacity of each cluster, once per unit.

    For example:
      modelplane top clusters
      modelplane top clusters -o json
    """
    _show(lambda fleet: [row(each) for each in by_cluster(fleet)], output, no_headers)


@top.command("pools")
def pools(output: Output = ReportFormat.TABLE, no_headers: NoHeaders = False) -> None:
    """Show the capacity of each pool.

    For example:
      modelplane top pools
      modelplane top pools --no-headers
    """
    _show(lambda fleet: pool_rows(fleet, now_ms()), output, no_headers)


@top.command("namespaces")
def namespaces(
    namespace: options.Namespace = None,
    output: Output = ReportFormat.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show the capacity that the replicas of each namespace have.

    For example:
      modelplane top namespaces
      modelplane top namespaces -n ml-team
    """
    _show(
        lambda fleet: [
            each
            for each in namespace_rows(fleet, now_ms())
            if namespace in (None, each["namespace"])
        ],
        output,
        no_headers,
    )


@top.command("quotas")
def quotas(
    namespace: options.Namespace = None,
    output: Output = ReportFormat.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show the use and the limit of each quota in the policy.

    A quota is a limit. It reserves nothing, and no other namespace can lend to it.

    For example:
      modelplane top quotas
      modelplane top quotas -n ml-team
    """
    _show(
        lambda fleet: [
            each
            for each in quota_rows(fleet, now_ms())
            if namespace in (None, each["namespace"])
        ],
        output,
        no_headers,
        "The policy has no such quotas; `modelplane policy get` prints it",
    )


@top.command("queues")
def queues(output: Output = ReportFormat.TABLE, no_headers: NoHeaders = False) -> None:
    """Show the admission queues of clusters with a capacity adapter, in devices.

    GUARANTEED is the own share of a queue, BORROWED what it uses above it, and WAITING
    the number of its workloads that wait for admission.

    For example:
      modelplane top queues
    """
    _show(
        queue_rows,
        output,
        no_headers,
        "No cluster with a capacity adapter has reported queues",
    )


def by_cluster(fleet: LiveFleet) -> list[PoolCapacityUse]:
    """Return the sum of each cluster's pools of one unit, as a pool without a name."""
    found: dict[tuple[str, str], PoolCapacityUse] = {}
    for each in pool_use(fleet.fleet, now_ms()):
        key = (each.cluster, each.unit)
        if key not in found:
            found[key] = each._replace(pool="")
            continue
        seen = found[key]
        sums = {name: getattr(seen, name) + getattr(each, name) for name in _AMOUNTS}
        reasons = [why for why in dict.fromkeys((seen.why, each.why)) if why]
        found[key] = seen._replace(**sums, why="; ".join(reasons))
    return list(found.values())


def _show(
    rows_of: Callable[[LiveFleet], Sequence[Tree]],
    output: ReportFormat,
    no_headers: bool,
    none: str = "No capacity is used",
) -> None:
    rows = rows_of(asyncio.run(_read()))
    if output in {ReportFormat.JSON, ReportFormat.YAML}:
        print(as_json(rows) if output == ReportFormat.JSON else as_yaml(list(rows)))
        return
    for line in use_lines(with_words(rows), titled=not no_headers, none=none):
        print(line)


def use_lines(rows: Sequence[Tree], *, titled: bool, none: str) -> list[str]:
    """Return the table of rows with equal fields, or `none` if there are no rows."""
    if not rows:
        return [none if titled else ""]
    titles = [
        "".join(f"-{char}" if char.isupper() else char for char in key).upper()
        for key in rows[0]
    ]
    cells = [[str(value) for value in row.values()] for row in rows]
    return columns(titles if titled else (), cells)


async def _read() -> LiveFleet:
    async with control_plane(load_settings(), _WHY) as plane:
        return await read_live(plane)
