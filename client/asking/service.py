"""The address of a ModelService as seen from this machine, and its endpoints."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from api_types import labels
from api_types.environment import CONFIG_VARIABLE
from fleet_client.configuration import (
    front_named,
    home_folder,
    load_settings,
    local_settings_file,
)
from fleet_client.connection import fleet_objects
from fleet_client.errors import CommandFailed
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree, at_path, condition


@dataclass(frozen=True)
class ServiceAddress:
    """The address of a service without a trailing slash, and its endpoints' clusters.

    An endpoint outside the fleet has no cluster.
    """

    target: Target
    url: str
    clusters: Mapping[str, str] = field(default_factory=dict)

    def responder(self, response: httpx.Response) -> str:
        """Return the replica and the cluster that sent a response."""
        name = response.headers.get(labels.RESPONDER_HEADER, "")
        if not name:
            return "the gateway, which named no endpoint"
        cluster = self.clusters.get(name, "")
        return f"{name} on {cluster}" if cluster else name


async def find_service(target: Target, gateway: str | None) -> ServiceAddress:
    """Return a service and its address.

    `gateway` replaces the gateway's own address; so does the gateway of the fleet on
    this machine. Raise `NotFound`, `Unreachable`, and `CommandFailed` while the service
    has no address.
    """
    async with fleet_objects(load_settings()) as plane:
        tree = await plane.describe(target)
    base = (
        gateway
        or _local_gateway()
        or _origin(str(at_path(tree, ".status.address") or ""))
    )
    if not base:
        ready = condition(tree, "Ready")
        raise CommandFailed(
            f"{target.title} has no address: {ready.get('message') or 'it is not Ready yet'}",
            next_step=f"`modelplane describe {target.command}` shows what it waits for",
        )
    return ServiceAddress(
        target, f"{base.rstrip('/')}/{target.namespace}/{target.name}", _clusters(tree)
    )


def _clusters(tree: Tree) -> dict[str, str]:
    endpoints = at_path(tree, ".status.endpoints") or []
    return {
        str(each.get("name") or ""): str(each.get("cluster") or "")
        for each in endpoints
    }


def _origin(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


def way_from_here(target: Target, tree: Tree) -> str:
    """Return one line about how this machine reaches a service of the local fleet.

    Return an empty string for any other fleet, and for a service without an address.
    """
    address = str(at_path(tree, ".status.address") or "")
    local = _local_gateway() if address else ""
    if not local:
        return ""
    name, _, scope = target.command.removeprefix(f"{target.kind.short}/").partition(" ")
    options = f" {scope}" if scope else ""
    return (
        f"{address} is in the network of the local fleet; from this machine use "
        f"`modelplane chat {name}{options}` or `modelplane curl {name} "
        f"/v1/models{options}`, or {local}/{target.namespace}/{target.name}/v1"
    )


def _local_gateway() -> str:
    """Return the address of the local fleet's gateway.

    Return an empty string if commands use another fleet.
    """
    file, named = local_settings_file(), os.environ.get(CONFIG_VARIABLE)
    if (
        front_named()
        or not file.is_file()
        or (named and Path(named).expanduser().absolute() != file)
    ):
        return ""
    from client.local.gateway import local_gateway_url  # noqa: PLC0415 - slow to import

    return local_gateway_url(home_folder()) or ""
