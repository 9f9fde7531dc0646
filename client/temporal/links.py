"""Addresses in the Temporal UI, where every step of every object can be seen."""

from urllib.parse import quote

from api_types.settings import Settings


def ui_address(settings: Settings) -> str:
    """Give the address of the UI; without a setting, where the dev server puts it: the same host, port 8233."""
    if settings.temporal.ui:
        return settings.temporal.ui.rstrip("/")
    return f"http://{settings.temporal.address.rpartition(':')[0]}:8233"


def list_link(settings: Settings) -> str:
    """Give the page that lists all workflows."""
    return f"{ui_address(settings)}/namespaces/{quote(settings.temporal.namespace, safe='')}/workflows"
