"""Rules for references to other objects.

A workflow would wait forever for an object whose name is invalid. The name may also
become part of a path.
"""

import re

from api_types.resources.model_cache import (
    AuthSecret,
    CacheVolume,
    OciModel,
    S3AuthSecret,
)
from api_types.resources.model_deployment import ModelCacheRef
from api_types.resources.parts.hydration import Hydration, ImagePullSecret, KeyReference
from api_types.resources.parts.pod_template import (
    ConfigMapKeyRef,
    LocalObjectReference,
    SecretKeyRef,
)
from api_types.validation.rules.metadata import is_dns_subdomain
from api_types.validation.rules.rule import Findings, RuleContext, Rules

_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_MAX = 253
_NOT_A_NAME = "not the name of an object; use lower-case letters, digits, '-' and '.', at most 253"
_NOT_A_KEY = f"not a key; use letters, digits, '-', '_' and '.', at most {_KEY_MAX}"
_A_FOLDER = "not a key; it may not be '.', nor begin with '..'"


def _name(name: str | None, context: RuleContext, *at: str) -> Findings:
    if name is not None and not is_dns_subdomain(name):
        yield context.error(_NOT_A_NAME, *at)


def _key(key: str, context: RuleContext) -> Findings:
    # As in Kubernetes: each key becomes a file name in volumes with the object.
    if len(key) > _KEY_MAX or not _KEY.fullmatch(key):
        yield context.error(_NOT_A_KEY, "key")
    elif key == "." or key.startswith(".."):
        yield context.error(_A_FOLDER, "key")


def object_can_exist(
    reference: ImagePullSecret | LocalObjectReference | ModelCacheRef,
    context: RuleContext,
) -> Findings:
    """Reject names that no object can have."""
    yield from _name(reference.name, context, "name")


def key_can_exist(
    reference: AuthSecret
    | S3AuthSecret
    | KeyReference
    | SecretKeyRef
    | ConfigMapKeyRef,
    context: RuleContext,
) -> Findings:
    """Reject names and keys that no Secret or ConfigMap can have."""
    yield from _name(reference.name, context, "name")
    yield from _key(reference.key, context)


def pull_secret_can_exist(model: OciModel, context: RuleContext) -> Findings:
    """Reject a name that no Secret can have."""
    yield from _name(model.pull_secret, context, "pullSecret")


def service_account_can_exist(hydration: Hydration, context: RuleContext) -> Findings:
    """Reject a name that no ServiceAccount can have."""
    yield from _name(hydration.service_account_name, context, "serviceAccountName")


def storage_class_can_exist(volume: CacheVolume, context: RuleContext) -> Findings:
    """Reject a name that no StorageClass can have."""
    yield from _name(volume.storage_class_name, context, "storageClassName")


RULES: Rules = {
    **dict.fromkeys(
        (ImagePullSecret, LocalObjectReference, ModelCacheRef), (object_can_exist,)
    ),
    **dict.fromkeys(
        (AuthSecret, S3AuthSecret, KeyReference, SecretKeyRef, ConfigMapKeyRef),
        (key_can_exist,),
    ),
    OciModel: (pull_secret_can_exist,),
    Hydration: (service_account_can_exist,),
    CacheVolume: (storage_class_can_exist,),
}
