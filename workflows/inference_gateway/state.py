"""What the InferenceGateway carries from run to run."""

from pydantic import Field

from api_types.base import NAME_MAX
from api_types.messages.gateway_work import INSTALL_STEPS, InstallStep, ObservedGateway
from api_types.messages.versions import ObservationVersion, Version
from api_types.pins.charts import isolates_backends
from workflows.entity.failures import NO_FAILURE, Failure
from workflows.entity.state import EntityState


class GatewayState(EntityState):
    """The state of the gateway.

    `users`: the workflow ids of services and endpoints that registered, `registrations` the last one of each, `unanswered` those of them
    that got no report yet. `reported`: digest of the last report. `connects` counts connections to the control cluster, `connected` says
    whether there is one. `watches` numbers the watches. `installed`: digest of what is installed, empty while something is missing;
    `repairs`: how often it was installed again since the gateway was last accepted, `repair_at`: when it is the next time. `taken_steps`:
    those that were begun and not taken back; `waiting_step`: what the installation waits for. `kubernetes_version` is that of the control
    cluster; `denied_cidrs`: networks where endpoints may not be, None before a worker has looked.
    """

    users: list[str] = Field(default_factory=list)
    registrations: dict[str, Version] = Field(default_factory=dict)
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
        """Whether the control cluster answers."""
        return self.connected and (self.observed is None or self.observed.reachable)

    @property
    def address(self) -> str:
        """The address of the gateway; the last one while the control cluster does not answer."""
        return self.observed.address if self.observed else ""

    @property
    def chart_version(self) -> str:
        """The version of Traefik's chart."""
        return str(((self.spec or {}).get("traefik") or {}).get("version", ""))[:NAME_MAX]

    @property
    def address_pool(self) -> str:
        """The addresses for MetalLB; empty where the cloud assigns some."""
        traefik = (self.spec or {}).get("traefik") or {}
        pool = str((traefik.get("metallb") or {}).get("addressPool", "")) if traefik.get("loadBalancer") == "MetalLB" else ""
        return pool[:NAME_MAX]

    @property
    def isolates_backends(self) -> bool:
        """Whether two services may route one endpoint."""
        return isolates_backends(self.chart_version)

    @property
    def steps(self) -> list[InstallStep]:
        """What shall be installed, in order."""
        return [step for step in INSTALL_STEPS if self.address_pool or step not in ("metallb", "address-pool")]

    @property
    def unwanted_steps(self) -> list[InstallStep]:
        """What was installed and the spec no longer has, in the order in which it is taken away."""
        return [step for step in reversed(INSTALL_STEPS) if step in self.taken_steps and step not in self.steps]

    @property
    def removal_steps(self) -> list[InstallStep]:
        """What is taken away at the end, in order: also what a step may have begun whose end was never seen."""
        return [step for step in reversed(INSTALL_STEPS) if step in self.taken_steps or step in self.steps]
