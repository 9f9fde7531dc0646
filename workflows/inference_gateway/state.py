"""The state that the InferenceGateway carries from run to run."""

from typing import Any

from pydantic import Field

from api_types.base import NAME_MAX
from api_types.messages.gateway_work import (
    INSTALL_STEPS,
    InstallStep,
    ObservedGateway,
    RunInstallStep,
)
from api_types.messages.routing import GatewayBackend
from api_types.messages.versions import MessageVersion, ObservationVersion
from api_types.pins.charts import ENVOY_GATEWAY, isolates_backends
from workflows.entity.failures import NO_FAILURE, Failure
from workflows.entity.state import EntityState


class GatewayState(EntityState):
    """The state of the gateway.

    Attributes:
        users: the workflow ids of registered services and endpoints.
        registrations: the last registration of each user.
        unanswered: the users that have received no report yet.
        reported: the digest of the last report.
        connects: the number of connections to the control cluster so far.
        connected: whether the control cluster is connected.
        kubernetes_version: the version of the control cluster.
        denied_cidrs: networks where endpoints may not be; None until a worker has
            reported them.
        watches: the number of the last watch.
        installed: the digest of the installation; empty while a part is missing.
        repairs: the number of repairs since the gateway was last accepted.
        repair_at: the time of the next repair.
        taken_steps: the installation steps that were begun and not reverted.
        waiting_step: the reason why the installation waits.

    """

    users: list[str] = Field(default_factory=list)
    registrations: dict[str, MessageVersion] = Field(default_factory=dict)
    unanswered: list[str] = Field(default_factory=list)
    reported: str = ""
    connects: int = 0
    connected: bool = False
    kubernetes_version: str = ""
    denied_cidrs: list[str] | None = None
    watches: int = 0
    observed: ObservedGateway | None = None
    observed_version: ObservationVersion = ObservationVersion()
    installed: str = ""
    repairs: int = 0
    repair_at: str = ""
    taken_steps: list[InstallStep] = Field(default_factory=list)
    waiting_step: str = ""
    failure: Failure = NO_FAILURE
    retry_at: str = ""

    @property
    def reachable(self) -> bool:
        """Return whether the control cluster answers."""
        return self.connected and (self.observed is None or self.observed.reachable)

    @property
    def address(self) -> str:
        """Return the address of the gateway.

        It is the last known one while the control cluster does not answer.
        """
        return self.observed.address if self.observed else ""

    @property
    def backend(self) -> GatewayBackend:
        """Return the implementation of the gateway."""
        return "Envoy" if (self.spec or {}).get("backend") == "Envoy" else "Traefik"

    @property
    def controller(self) -> str:
        """Return the name of the backend's controller, for people."""
        return "Envoy Gateway" if self.backend == "Envoy" else "Traefik"

    @property
    def _block(self) -> dict[str, Any]:
        """Return the block of the backend."""
        return (self.spec or {}).get(self.backend.lower()) or {}

    @property
    def chart_version(self) -> str:
        """Return the version of the backend's chart."""
        default = ENVOY_GATEWAY.version if self.backend == "Envoy" else ""
        return str(self._block.get("version", default))[:NAME_MAX]

    @property
    def address_pool(self) -> str:
        """Return the addresses for MetalLB; empty where the cloud assigns addresses."""
        if self._block.get("loadBalancer") != "MetalLB":
            return ""
        return str((self._block.get("metallb") or {}).get("addressPool", ""))[:NAME_MAX]

    @property
    def isolates_backends(self) -> bool:
        """Return whether two services may route the same endpoint."""
        return self.backend == "Envoy" or isolates_backends(self.chart_version)

    @property
    def steps(self) -> list[InstallStep]:
        """Return the steps of the installation, in order."""
        left_out = {"traefik" if self.backend == "Envoy" else "envoy-gateway"}
        if not self.address_pool:
            left_out |= {"metallb", "address-pool"}
        return [step for step in INSTALL_STEPS if step not in left_out]

    def install_order(self, step: InstallStep, *, remove: bool) -> RunInstallStep:
        """Return the order to install or remove one part."""
        is_envoy = self.backend == "Envoy"
        # An installation takes over the parts of a terminated gateway.
        may_be_unknown = self.reset or step not in self.taken_steps
        return RunInstallStep(
            uid=self.uid,
            step=step,
            traefik_version="" if is_envoy else self.chart_version,
            address_pool=self.address_pool,
            remove=remove,
            backend=self.backend,
            envoy_version=self.chart_version if is_envoy else "",
            of_predecessors=remove and may_be_unknown,
        )

    @property
    def unwanted_steps(self) -> list[InstallStep]:
        """Return the steps to revert because the spec no longer needs them, in order.

        They include steps that may have begun without a known result.
        """
        return [
            step
            for step in reversed(INSTALL_STEPS)
            if step in self.taken_steps and step not in self.steps
        ]

    @property
    def removal_steps(self) -> list[InstallStep]:
        """Return the steps to revert when the gateway is deleted, in order.

        They include steps that may have begun without a known result.
        """
        return [
            step
            for step in reversed(INSTALL_STEPS)
            if step in self.taken_steps or step in self.steps
        ]
