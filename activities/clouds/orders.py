"""Reads the orders of CloudCluster workflows: the caller, manifests, and one object."""

from typing import Any, TypeVar

from pydantic import ValidationError
from temporalio import activity

from activities.clouds.desired.owner import ClusterOwner, owner_named
from activities.clouds.desired.wire import from_wire
from activities.clouds.lifecycle.handler import ObjectWork
from activities.clouds.lifecycle.tokens import token_of
from api_types import names
from api_types.errors import InvalidInput, PermissionDenied
from api_types.messages.clouds import CloudAccount, CloudObjectOrder, PlanCloud
from api_types.resources.inference_class import InferenceClass
from api_types.resources.inference_cluster import InferenceCluster
from api_types.resources.parts.base_types import API_VERSION
from api_types.validation.manifests import InvalidManifest, load

ModelT = TypeVar("ModelT")


def check_caller(account: CloudAccount) -> None:
    """Raise PermissionDenied unless the CloudCluster of this account is the caller."""
    asked_by = activity.info().workflow_id or ""
    if (
        asked_by != names.cloud_cluster_id(account.cluster, account.cluster_uid)
        or not names.cluster_of_cloud(asked_by)[0]
    ):
        raise PermissionDenied(
            f"workflow {asked_by} may not order work on objects of cluster "
            f"{account.cluster}; only its CloudCluster workflow may"
        )


def read_manifests(
    order: PlanCloud,
) -> tuple[InferenceCluster, dict[str, InferenceClass]]:
    """Parse the manifests of an order. Raises InvalidInput."""
    spec = {"spec": order.manifest.get("spec", {})}
    metadata = {"name": order.account.cluster, "uid": order.account.cluster_uid}
    try:
        cluster = load(
            {
                "apiVersion": API_VERSION,
                "kind": "InferenceCluster",
                "metadata": metadata,
                **spec,
            }
        )
        classes = {
            name: load(
                {
                    "apiVersion": API_VERSION,
                    "kind": "InferenceClass",
                    "metadata": {"name": name},
                    "spec": found,
                }
            )
            for name, found in order.classes.items()
        }
    except (ValidationError, InvalidManifest, ValueError) as error:
        raise InvalidInput(
            f"the manifest of cluster {order.account.cluster} is invalid: {error}"
        ) from None
    return _as(InferenceCluster, cluster), {
        name: _as(InferenceClass, found) for name, found in classes.items()
    }


def _as(model: type[ModelT], found: Any) -> ModelT:
    if not isinstance(found, model):
        raise InvalidInput(f"not a manifest of {model.__name__}")
    return found


def work_of(order: CloudObjectOrder) -> ObjectWork:
    """Return the lifecycle's input for an order.

    Raises InvalidInput if it is malformed.
    """
    try:
        desired = from_wire(order.object)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    owner = _owner(order.account)
    token = token_of(owner, order.object.key, order.object.digest, order.epoch)
    attempt = activity.info().attempt + (1 if order.again else 0)
    return ObjectWork(owner, desired, order.known, token, order.epoch, attempt)


def _owner(account: CloudAccount) -> ClusterOwner:
    if not account.installation:
        raise InvalidInput(
            f"the account of cluster {account.cluster} names no installation: run "
            "plan_cloud first"
        )
    return owner_named(account.installation, account.cluster, account.cluster_uid)
