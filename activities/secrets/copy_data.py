"""Read the values of a copied Secret or ConfigMap when the copy is written."""

import base64
from typing import Any

from activities.render.objects.propagation import SECRET, PropagatedCopy
from activities.secrets.store import SecretReader, check_tenants_own


async def read_copy_data(store: SecretReader, copy: PropagatedCopy) -> dict[str, Any]:
    """Return the data fields of a copy's manifest.

    Raises SecretMissing, or PermissionDenied if a tenant named a Secret of the
    platform.
    """
    if not copy.platform:
        check_tenants_own(copy.source_namespace, copy.source_name)
    stored = await store.read(copy.source_namespace, copy.source_name)
    values = {
        key: value
        for key, value in stored.data.items()
        if not copy.keys or key in copy.keys
    }
    if copy.kind == SECRET:
        return {"data": {key: _encoded(value) for key, value in values.items()}}
    texts, blobs = {}, {}
    for key, value in values.items():
        try:
            texts[key] = value.decode()
        except UnicodeDecodeError:
            blobs[key] = _encoded(value)
    fields = {"data": texts, "binaryData": blobs}
    return {name: found for name, found in fields.items() if found}


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
