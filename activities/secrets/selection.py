"""Which secret store the settings select.

The one module beside the worker that imports `clients`: the client process needs a store too and has no composition root of its own. The
imports are inside the function, because workflows import the activities that use a store and may reach no SDK.
"""

from activities.secrets.store import SecretStore
from api_types.settings import Settings


def secret_store(settings: Settings) -> SecretStore:
    """Give the store that the settings name (`secrets.store`)."""
    if settings.secrets.store == "directory":
        from activities.clients.secrets.directory import SecretDirectory  # noqa: PLC0415 - each implementation imports only what it needs

        return SecretDirectory(settings.secrets.directory.expanduser())
    from activities.clients.secrets.cluster import control_cluster_store  # noqa: PLC0415 - reaches the Kubernetes SDK

    return control_cluster_store(settings)
