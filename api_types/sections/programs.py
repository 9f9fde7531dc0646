"""Settings of the programs themselves: one worker, logs, traces and monitors."""

from typing import Literal

from pydantic import Field

from api_types.sections.base import SettingsSection
from api_types.setting_types import (
    Address,
    BuildId,
    DeploymentName,
    Seconds,
    Url,
)


class WorkerSettings(SettingsSection):
    """Limits and addresses of one worker process."""

    identity: str = Field(
        default="",
        description="Name in Temporal's list of pollers. Empty: host name and process ID.",
    )
    deployment_name: DeploymentName = Field(
        default="",
        description=(
            "Worker Deployment in Temporal, which versions workers: the workers "
            "of a build run no workflow until the build is promoted. Empty: no "
            "versioning."
        ),
    )
    build_id: BuildId = Field(
        default="",
        description=(
            "Build that Temporal records with each workflow task. The build of an "
            "image sets it. Empty: a digest of the sources."
        ),
    )
    listen: Address = Field(
        default="127.0.0.1:9464",
        description="Address of `/healthz`, `/readyz` and `/metrics`.",
    )
    max_concurrent_workflow_tasks: int = Field(
        default=40,
        ge=2,
        description=(
            "Concurrent workflow tasks. They share one interpreter: with many "
            "more, none would finish within the server's limit of 10 s."
        ),
    )
    max_concurrent_activities: int = Field(
        default=200,
        ge=1,
        description=(
            "Concurrent activities of one task queue, such as applies, except "
            "watches and waits."
        ),
    )
    max_concurrent_watches: int = Field(
        default=1000,
        ge=1,
        description=(
            "Number of clusters that this worker watches. Further clusters wait "
            "for another worker."
        ),
    )
    max_concurrent_waits: int = Field(
        default=1000,
        ge=1,
        description=(
            "Concurrent teardown steps, and as many waits of caches. Each lasts "
            "until its objects are gone."
        ),
    )
    max_cached_workflows: int = Field(
        default=2000,
        ge=0,
        description="Number of workflows that the worker keeps in its cache.",
    )
    graceful_shutdown_seconds: Seconds = Field(
        default=20,
        description=(
            "Time in seconds that running activities have to hand over their work."
        ),
    )


class LogSettings(SettingsSection):
    """Logs of all programs."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="Lowest level that is logged.",
    )
    format: Literal["json", "console"] = Field(
        default="json",
        description="Format of log lines.",
    )


class TracingSettings(SettingsSection):
    """Traces of endpoint pickers and sidecars."""

    enabled: bool = Field(
        default=False,
        description="Endpoint pickers and sidecars send traces.",
    )
    endpoint: Url = Field(
        default="http://otel-collector.monitoring.svc:4317",
        description="OTLP endpoint, as pods reach it.",
    )
    sampler: Literal[
        "always_on",
        "always_off",
        "traceidratio",
        "parentbased_always_on",
        "parentbased_always_off",
        "parentbased_traceidratio",
    ] = Field(
        default="parentbased_traceidratio",
        description="The OpenTelemetry sampler.",
    )
    sampler_argument: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Fraction of requests that is traced.",
    )


class MonitoringSettings(SettingsSection):
    """PodMonitors of engines and pickers, on clusters that serve that kind."""

    enabled: bool = Field(
        default=True,
        description=(
            "Create PodMonitors of engines and pickers on clusters that serve "
            "that kind."
        ),
    )
