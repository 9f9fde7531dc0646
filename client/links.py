"""Addresses in the Temporal UI, where every step of an object can be seen."""

from urllib.parse import quote

from temporalio.client import RPCError

from api_types.settings import Settings
from client.control import ControlPlane
from client.targets import Target


def ui_address(settings: Settings) -> str:
    """Give the address of the UI; without a setting, where the dev server puts it: the same host, port 8233."""
    if settings.temporal.ui:
        return settings.temporal.ui.rstrip("/")
    return f"http://{settings.temporal.address.rpartition(':')[0]}:8233"


def list_link(settings: Settings) -> str:
    """Give the page that lists all workflows."""
    return f"{ui_address(settings)}/namespaces/{quote(settings.temporal.namespace, safe='')}/workflows"


async def workflow_link(plane: ControlPlane, wanted: Target) -> str:
    """Give the page of the workflow that owns an object; without an answer from Temporal, the page of its id."""
    page = f"{list_link(plane.settings)}/{quote(wanted.workflow_id, safe='')}"
    try:
        run = (await plane.client.get_workflow_handle(wanted.workflow_id).describe()).run_id
    except RPCError:
        return page
    return f"{page}/{run}/history"
