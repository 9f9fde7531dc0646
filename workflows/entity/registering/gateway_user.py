"""How a ModelService or a ModelEndpoint follows the InferenceGateway.

The object registers, and the gateway reports every change to it. Without a gateway, or
without a control cluster, nothing can be applied, and existing objects stay as they
are.
"""

from collections.abc import Collection
from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from api_types.messages.routing import GatewayChanged, GatewayUse
from api_types.messages.signals import INFERENCE_GATEWAY, InferenceGatewaySignals
from api_types.messages.versions import MessageVersion
from workflows.entity.context import EntityContext
from workflows.entity.registering.awaiting import AwaitedEntities
from workflows.entity.state import EntityState

MISSING = "InferenceGateway default does not exist; apply one"


class FollowedGateway(BaseModel):
    """The state of the gateway in its user.

    `registered` means that the gateway knows the user. `known` is the last report.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
    )

    registered: bool = False
    version: MessageVersion = MessageVersion()
    known: GatewayChanged | None = None

    @property
    def connected(self) -> bool:
        """Return whether objects can be applied on the control cluster."""
        return self.known is not None and self.known.present and self.known.connected

    @property
    def problem(self) -> str:
        """Return why the gateway cannot be used; empty if it can."""
        if self.known is None:
            return "" if self.registered else MISSING
        if not self.known.present:
            return MISSING
        return self.known.problem


class GatewayUser:
    """Registers at the gateway and keeps its reports."""

    def __init__(
        self,
        context: EntityContext[EntityState],
        gateway: FollowedGateway,
        kind: Literal["ModelService", "ModelEndpoint"],
    ) -> None:
        self._context = context
        self._gateway = gateway
        self._kind: Literal["ModelService", "ModelEndpoint"] = kind
        # The gateway announces itself when it is created, but this object may not be
        # visible by then.
        self._awaited = AwaitedEntities(context)

    def record(self, message: GatewayChanged) -> None:
        """Record a report of the gateway.

        A gateway with another uid does not know this object yet: a registration after
        the last report may have reached the earlier gateway in its last task.
        """
        if not self._gateway.version.accepts(message.uid, message.sequence):
            return
        if not message.present:
            self._gateway.version = self._gateway.version.advanced(
                message.uid, message.sequence
            ).ended(message.uid)
            self._gateway.registered = False
        else:
            if self._gateway.version.is_doubtful(message.uid):
                self._gateway.registered = False
            self._gateway.version = self._gateway.version.advanced(
                message.uid, message.sequence
            )
            self._awaited.stop(INFERENCE_GATEWAY.workflow_id)
        self._gateway.known = message
        self._context.mark_changed()

    async def follow(self) -> None:
        """Register, unless the object is registered or waits for the gateway."""
        if self._gateway.registered or INFERENCE_GATEWAY.workflow_id in self._awaited:
            return
        # A message that arrives during the call may invalidate the registration.
        self._gateway.registered = True
        if not await self._register(used=True):
            self._gateway.registered = False
            if self._gateway.known is not None:
                self._gateway.known = self._gateway.known.model_copy(
                    update={"present": False, "connected": False}
                )
            self._awaited.wait_for(INFERENCE_GATEWAY.workflow_id)

    async def leave(self) -> None:
        """Unregister, because the object is deleted."""
        self._awaited.keep(())
        if self._gateway.registered:
            self._gateway.registered = False
            await self._register(used=False)

    def registered_at(self) -> list[str]:
        """Return the workflow id of the gateway, if it knows this object."""
        return [INFERENCE_GATEWAY.workflow_id] if self._gateway.registered else []

    def register_again(self, workflow_ids: Collection[str]) -> None:
        """Register again in the next pass if the gateway is among lost workflows.

        An object under deletion does not register again, but unregisters at its end.
        """
        if (
            INFERENCE_GATEWAY.workflow_id in workflow_ids
            and not self._context.state.deleting
        ):
            self._gateway.registered = False

    def retry(self) -> None:
        """Look for the gateway in the next pass."""
        self._awaited.keep(())

    async def _register(self, *, used: bool) -> bool:
        context = self._context
        message = GatewayUse(
            kind=self._kind,
            namespace=context.namespace,
            name=context.name,
            uid=context.state.uid,
            sequence=context.next_registration(),
            used=used,
        )
        return await context.signal_recorded(
            INFERENCE_GATEWAY, InferenceGatewaySignals.GATEWAY_USED, message
        )
