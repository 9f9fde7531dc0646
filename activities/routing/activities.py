"""Placeholder for type checks until the branch with the activities is merged."""

from temporalio import activity

from api_types.messages.gateway_work import (
    AppliedBackend,
    AppliedRoute,
    ApplyBackend,
    ApplyRoute,
    GatewayFacts,
    InstallStepResult,
    RemoveBackend,
    RemoveRoute,
    RunInstallStep,
    WatchGateway,
)


class RoutingActivities:
    """What runs on the control cluster."""

    @activity.defn
    async def apply_endpoint_backend(self, order: ApplyBackend) -> AppliedBackend:
        """Apply."""
        raise NotImplementedError

    @activity.defn
    async def remove_endpoint_backend(self, order: RemoveBackend) -> None:
        """Remove."""

    @activity.defn
    async def apply_service_route(self, order: ApplyRoute) -> AppliedRoute:
        """Apply."""
        raise NotImplementedError

    @activity.defn
    async def remove_service_route(self, order: RemoveRoute) -> None:
        """Remove."""

    @activity.defn
    async def connect_gateway(self, order: WatchGateway) -> GatewayFacts:
        """Connect."""
        raise NotImplementedError

    @activity.defn
    async def watch_gateway(self, order: WatchGateway) -> None:
        """Watch."""

    @activity.defn
    async def run_install_step(self, order: RunInstallStep) -> InstallStepResult:
        """Install."""
        raise NotImplementedError
