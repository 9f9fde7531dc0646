"""Service accounts and their keys."""

import re

from google.cloud import iam_admin_v1
from google.protobuf.empty_pb2 import Empty

from fakes.gcp.calls.errors import (
    CloudError,
    already_exists,
    invalid,
    not_found,
)
from fakes.gcp.services.world import World

KEYS_MAX = 10
"""The most keys of a user that an account can have."""

_ID = re.compile(r"[a-z]([-a-z0-9]{4,28}[a-z0-9])")
_Type = iam_admin_v1.ListServiceAccountKeysRequest.KeyType


def full_name(world: World, name: str) -> str:
    """Return the full name of an account or its key.

    The request may use `-` as the project, or the account's number.
    """
    parts = name.split("/")
    if len(parts) < 4 or parts[2] != "serviceAccounts":  # noqa: PLR2004
        raise invalid(f"Invalid name: {name}.")
    account = parts[3]
    if account.isdigit():
        accounts = [
            each
            for each in world.objects.values()
            if isinstance(each, iam_admin_v1.ServiceAccount)
        ]
        account = next(
            (each.email for each in accounts if each.unique_id == account), account
        )
    return "/".join([world.root, "serviceAccounts", account, *parts[4:]])


def get_service_account(
    world: World, request: iam_admin_v1.GetServiceAccountRequest
) -> iam_admin_v1.ServiceAccount:
    """Return an account. A new one may look as if the caller might not read it."""
    name = full_name(world, request.name)
    found = world.visible(name)
    if found is None and name in world.objects:
        raise CloudError(
            "PERMISSION_DENIED",
            "Permission 'iam.serviceAccounts.get' denied on resource (or it may not "
            "exist).",
            reason="IAM_PERMISSION_DENIED",
        )
    if found is None:
        raise not_found(request.name)
    return found


def list_service_accounts(
    world: World, request: iam_admin_v1.ListServiceAccountsRequest
) -> iam_admin_v1.ListServiceAccountsResponse:
    """Return a page of the accounts of the project."""
    names = [
        name
        for name in world.below(f"{request.name}/serviceAccounts/")
        if "/keys/" not in name
    ]
    start, size = int(request.page_token or 0), request.page_size or world.page_size
    token = str(start + size) if start + size < len(names) else ""
    page = [world.objects[name] for name in names[start : start + size]]
    return iam_admin_v1.ListServiceAccountsResponse(
        accounts=page, next_page_token=token
    )


def create_service_account(
    world: World, request: iam_admin_v1.CreateServiceAccountRequest
) -> iam_admin_v1.ServiceAccount:
    """Create an account, with a key of Google's that is listed as SYSTEM_MANAGED."""
    if not _ID.fullmatch(request.account_id):
        raise invalid(
            f'Invalid account id "{request.account_id}": 6 to 30 characters, lower case.'
        )
    email = f"{request.account_id}@{world.project}.iam.gserviceaccount.com"
    name = f"{world.root}/serviceAccounts/{email}"
    if name in world.objects:
        raise already_exists(name)
    account = iam_admin_v1.ServiceAccount(request.service_account)
    account.name, account.email, account.project_id = name, email, world.project
    account.unique_id = f"{100000000000000000000 + world.number()}"
    world.objects[name] = account
    key = f"{name}/keys/{world.number():040x}"
    world.objects[key] = iam_admin_v1.ServiceAccountKey(
        name=key, key_type=_Type.SYSTEM_MANAGED, valid_after_time=world.now()
    )
    return account


def patch_service_account(
    world: World, request: iam_admin_v1.PatchServiceAccountRequest
) -> iam_admin_v1.ServiceAccount:
    """Change the fields in the mask: display name, description."""
    name = full_name(world, request.service_account.name)
    found = world.objects.get(name)
    if found is None:
        raise not_found(name)
    for path in request.update_mask.paths:
        if path not in {"display_name", "description"}:
            raise invalid(f'Field "{path}" cannot be changed.')
        setattr(found, path, getattr(request.service_account, path))
    return found


def delete_service_account(
    world: World, request: iam_admin_v1.DeleteServiceAccountRequest
) -> Empty:
    """Delete an account with its keys. A member of the policy becomes `deleted:`."""
    name = full_name(world, request.name)
    found = world.objects.get(name)
    if found is None:
        raise not_found(request.name)
    member = f"serviceAccount:{found.email}"
    for binding in world.policy.bindings:
        binding.members = [
            f"deleted:{each}?uid={found.unique_id}" if each == member else each
            for each in binding.members
        ]
    world.policy.version += 1
    world.tokens.drop_account(found.email)
    world.remove(name)
    return Empty()


def _own_keys(world: World, account: str) -> list[str]:
    prefix = f"{account}/keys/"
    return [
        name
        for name, key in world.objects.items()
        if name.startswith(prefix) and key.key_type == _Type.USER_MANAGED
    ]


def create_service_account_key(
    world: World, request: iam_admin_v1.CreateServiceAccountKeyRequest
) -> iam_admin_v1.ServiceAccountKey:
    """Create a key.

    Only this answer has its private half, as the JSON text that google-auth reads.
    """
    account = full_name(world, request.name)
    found = world.objects.get(account)
    if found is None:
        raise not_found(request.name)
    if world.keys_barred:
        raise CloudError(
            "FAILED_PRECONDITION",
            (
                "Key creation is not allowed on this service account "
                "(constraints/iam.disableServiceAccountKeyCreation)."
            ),
            reason="ORG_POLICY_VIOLATION",
        )
    if len(_own_keys(world, account)) >= KEYS_MAX:
        raise CloudError(
            "RESOURCE_EXHAUSTED", "Maximum number of keys on account reached."
        )
    key_id, document = world.tokens.new_key(found.email, world.project, world.token_uri)
    name = f"{account}/keys/{key_id}"
    key = iam_admin_v1.ServiceAccountKey(
        name=name,
        key_type=_Type.USER_MANAGED,
        private_key_type=iam_admin_v1.ServiceAccountPrivateKeyType.TYPE_GOOGLE_CREDENTIALS_FILE,
        valid_after_time=world.now(),
    )
    world.objects[name] = key
    answer = iam_admin_v1.ServiceAccountKey(key)
    answer.private_key_data = document.encode()
    return answer


def list_service_account_keys(
    world: World, request: iam_admin_v1.ListServiceAccountKeysRequest
) -> iam_admin_v1.ListServiceAccountKeysResponse:
    """Return the keys of an account, of the given types, without their private halves."""
    account = full_name(world, request.name)
    if world.visible(account) is None:
        raise not_found(request.name)
    keys = [world.objects[name] for name in world.below(f"{account}/keys/")]
    return iam_admin_v1.ListServiceAccountKeysResponse(
        keys=[
            key
            for key in keys
            if not request.key_types or key.key_type in request.key_types
        ]
    )


def get_service_account_key(
    world: World, request: iam_admin_v1.GetServiceAccountKeyRequest
) -> iam_admin_v1.ServiceAccountKey:
    """Return a key, without its private half."""
    found = world.visible(full_name(world, request.name))
    if found is None:
        raise not_found(request.name)
    return found


def delete_service_account_key(
    world: World, request: iam_admin_v1.DeleteServiceAccountKeyRequest
) -> Empty:
    """Delete a key. Google's own cannot be deleted."""
    name = full_name(world, request.name)
    found = world.objects.get(name)
    if found is None:
        raise not_found(request.name)
    if found.key_type != _Type.USER_MANAGED:
        raise CloudError(
            "FAILED_PRECONDITION", "A system-managed key cannot be deleted."
        )
    world.tokens.drop_key(name.rpartition("/")[2])
    world.remove(name)
    return Empty()
