"""Where a ModelService is reached from here, and which replicas and endpoints it has."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from api_types import labels
from api_types.environment import CONFIG_VARIABLE
from client.configuration import front_named, home_folder, load_settings, local_settings_file
from client.errors import CommandFailed
from client.fleet.connection import fleet_objects
from client.refs.targets import Target
from client.refs.tree import Tree, at_path, condition


@dataclass(frozen=True)
class ServiceAddress:
    """The address of a service, without a trailing slash, and the cluster of each of its endpoints; empty for those of providers."""

    target: Target
    url: str
    clusters: Mapping[str, str] = field(default_factory=dict)

    def responder(self, response: httpx.Response) -> str:
        """Say which replica on which cluster responded."""
        name = response.headers.get(labels.RESPONDER_HEADER, "")
        if not name:
            return "the gateway, which named no endpoint"
        cluster = self.clusters.get(name, "")
        return f"{name} on {cluster}" if cluster else name


async def find_service(target: Target, gateway: str | None) -> ServiceAddress:
    """Find a service and its address. Raises `NotFound`, `CommandFailed` while it has no address, `Unreachable`.

    `gateway` is used in place of the gateway's own address, as is that of the fleet which runs on this machine.
    """
    async with fleet_objects(load_settings()) as plane:
        tree = await plane.describe(target)
    base = gateway or _local_gateway() or _origin(str(at_path(tree, ".status.address") or ""))
    if not base:
        ready = condition(tree, "Ready")
        raise CommandFailed(
            f"{target.title} has no address: {ready.get('message') or 'it is not Ready yet'}",
            next_step=f"`modelplane describe {target.command}` shows what it waits for",
        )
    return ServiceAddress(target, f"{base.rstrip('/')}/{target.namespace}/{target.name}", _clusters(tree))


def _clusters(tree: Tree) -> dict[str, str]:
    endpoints = at_path(tree, ".status.endpoints") or []
    return {str(each.get("name") or ""): str(each.get("cluster") or "") for each in endpoints}


def _origin(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


def way_from_here(target: Target, tree: Tree) -> str:
    """Say in one line how this machine reaches a service of its own fleet; empty for another fleet, or without an address."""
    address = str(at_path(tree, ".status.address") or "")
    local = _local_gateway() if address else ""
    if not local:
        return ""
    name, _, scope = target.command.removeprefix(f"{target.kind.short}/").partition(" ")
    options = f" {scope}" if scope else ""
    return (
        f"{address} is in the network of the local fleet; from this machine use `modelplane chat {name}{options}` or "
        f"`modelplane curl {name} /v1/models{options}`, or {local}/{target.namespace}/{target.name}/v1"
    )


def _local_gateway() -> str:
    """Give the address of the gateway of the fleet on this machine; empty if commands are about another one."""
    file, named = local_settings_file(), os.environ.get(CONFIG_VARIABLE)
    if front_named() or not file.is_file() or (named and Path(named).expanduser().absolute() != file):
        return ""
    from client.local.gateway import local_gateway_url  # noqa: PLC0415 - the testbed would slow the start of every other command

    return local_gateway_url(home_folder()) or ""
