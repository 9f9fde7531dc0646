"""The serving stack's part of the testbed's Envoy Gateway."""

from activities.render.objects.manifest import RenderOwner
from activities.render.stack import components, objects
from activities.render.stack.values import values_of
from activities.stack.record import stack_record
from api_types.settings import StackSettings
from testbed.node.envoy_stack import EnvoyStack


def envoy_stack(settings: StackSettings | None = None) -> EnvoyStack:
    """Return the values and objects that the product applies for a cluster's gateway."""
    spec = stack_record("Existing", ("", ""), settings or StackSettings())
    owner = RenderOwner("InferenceCluster", "", "testbed", "", generation=0)
    groups = (objects.PROXY, objects.CLASS, objects.GATEWAY)
    rendered = [each for name in groups for each in objects.group(name, spec, owner)]
    received = values_of(components.AI_GATEWAY, spec)["controller"]["maxRecvMsgSize"]
    return EnvoyStack(
        values=values_of(components.ENVOY_GATEWAY, spec),
        message_bytes=int(received),
        objects=[each.manifest for each in rendered],
    )
