"""Select the secret store that the settings name.

Besides the worker and `activities/pod_access.py`, only this module imports `clients`, because the
client process needs a store too and has no composition root. The imports are inside the
function, because workflows import the activities that use a store and may not import an
SDK.
"""

from activities.secrets.store import SecretStore
from api_types.settings import Settings


def secret_store(settings: Settings) -> SecretStore:
    if settings.secrets.store == "directory":
        from activities.clients.secrets.directory import SecretDirectory  # noqa: PLC0415 - on use

        return SecretDirectory(settings.secrets.directory.expanduser())
    from activities.clients.secrets.cluster import control_cluster_store  # noqa: PLC0415 - an SDK

    return control_cluster_store(settings)
