"""Addresses in the Temporal UI, which shows every step of every object."""

from urllib.parse import quote

from api_types.settings import Settings


def ui_address(settings: Settings) -> str:
    """Return the address of the UI.

    It defaults to the UI of the dev server: the same host, port 8233.
    """
    if settings.temporal.ui:
        return settings.temporal.ui.rstrip("/")
    return f"http://{settings.temporal.address.rpartition(':')[0]}:8233"


def list_link(settings: Settings) -> str:
    """Return the page that lists all workflows."""
    namespace = quote(settings.temporal.namespace, safe="")
    return f"{ui_address(settings)}/namespaces/{namespace}/workflows"
