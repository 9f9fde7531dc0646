"""Settings of clusters: how they are reached, watched and torn down, and their secrets."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, IPvAnyNetwork

from api_types import labels
from api_types.limits import DENIED_NETWORKS_MAX
from api_types.sections.base import SettingsSection
from api_types.setting_types import (
    Seconds,
)


class SecretSettings(SettingsSection):
    """The secret store: a directory of files, or Secrets of the control cluster."""

    store: Literal["directory", "controlCluster"] = Field(
        default="directory",
        description=(
            "The secret store: `directory`, a directory of files, or "
            "`controlCluster`, the Secrets of the control cluster."
        ),
    )
    directory: Path = Field(
        default=Path("~/.local/share/modelplane/secrets"),
        description="Directory of the secret store `directory`.",
    )
    propagation: Literal["off", "labelled", "all"] = Field(
        default="labelled",
        description=(
            "Copies of the Secrets that pods name: `off`, only those with the "
            f"label `{labels.PROPAGATE}` (`labelled`), or `all`. A copy on a "
            "cluster follows its source within a minute."
        ),
    )
    restart_on_rotation: bool = Field(
        default=False,
        description="Roll pods when one of their Secrets changes.",
    )


class KubeconfigSettings(SettingsSection):
    """Fields that a user's kubeconfig may have in addition to the safe minimum."""

    allow_loopback: bool = Field(
        default=False,
        description=(
            "Allow servers on loopback addresses in kubeconfigs. The local fleet "
            "sets it."
        ),
    )
    allow_exec: bool = Field(
        default=False,
        description=(
            "Allow `exec` and auth-provider entries in kubeconfigs, which run "
            "programs on the worker."
        ),
    )


class ControlClusterSettings(SettingsSection):
    """The cluster with the HTTPRoutes and the InferenceGateway.

    It is a reference into the secret store; without a name there is no such cluster.
    """

    namespace: str = Field(
        default="modelplane-system",
        description="Namespace of the control cluster's kubeconfig in the secret store.",
    )
    name: str = Field(
        default="",
        description=(
            "Name of the Secret with the kubeconfig. Empty: there is no control "
            "cluster."
        ),
    )
    key: str = Field(
        default="kubeconfig",
        description="Key of the kubeconfig in the Secret.",
    )
    endpoint_deny_cidrs: (
        Annotated[tuple[IPvAnyNetwork, ...], Field(max_length=DENIED_NETWORKS_MAX)]
        | None
    ) = Field(
        default=None,
        description=(
            'Networks in which endpoints may not be, such as `["10.96.0.0/12"]`. '
            "Unset: the networks of the control cluster's Services and pods, as "
            "far as it reports them. An empty list: none."
        ),
    )


class ClusterSettings(SettingsSection):
    """Unreachable clusters, and the load of one worker on a cluster."""

    unreachable_after: Seconds = Field(
        default=300,
        description=(
            "Time in seconds without contact after which the endpoints on a "
            "cluster are withdrawn, if its gateway does not answer either."
        ),
    )
    max_concurrent_requests: int = Field(
        default=24,
        ge=1,
        description=(
            "Concurrent requests of one worker to one API server, without watches."
        ),
    )
    max_concurrent_applies: int = Field(
        default=32,
        ge=1,
        description=(
            "Replicas and caches that one worker applies concurrently on one "
            "cluster. Others wait for their turn."
        ),
    )


class TeardownSettings(SettingsSection):
    """Time limits of teardowns."""

    drain_seconds: Seconds = Field(
        default=15,
        description=(
            "Time in seconds between the withdrawal of an endpoint and the "
            "deletion or replacement of its pods."
        ),
    )
    force_after: Seconds | None = Field(
        default=None,
        description=(
            "Time in seconds after which stuck pods are force-deleted. Unset: never."
        ),
    )
