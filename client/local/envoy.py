"""The product's part of the testbed's Envoy Gateways."""

from activities.render.gateway import objects as control_objects
from activities.render.objects.manifest import RenderOwner
from activities.render.stack import components, objects
from activities.render.stack.values import values_of
from activities.stack.record import stack_record
from api_types.pins import charts
from api_types.resources.inference_gateway import SINGLETON_NAME
from api_types.sections.stacks import StackSettings
from testbed.node.envoy_stack import ControlEnvoy, EnvoyStack


def envoy_stack(settings: StackSettings | None = None) -> EnvoyStack:
    """Return the values and objects that the product applies for the gateways.

    They are those of inference clusters, and of the control cluster.
    """
    spec = stack_record("Existing", ("", ""), settings or StackSettings())
    owner = RenderOwner("InferenceCluster", "", "testbed", "", generation=0)
    groups = (objects.PROXY, objects.CLASS, objects.GATEWAY)
    rendered = [each for name in groups for each in objects.group(name, spec, owner)]
    received = values_of(components.AI_GATEWAY, spec)["controller"]["maxRecvMsgSize"]
    return EnvoyStack(
        values=values_of(components.ENVOY_GATEWAY, spec),
        message_bytes=int(received),
        objects=[each.manifest for each in rendered],
        control=_control(),
    )


def _control() -> ControlEnvoy:
    owner = RenderOwner("InferenceGateway", "", SINGLETON_NAME, "", generation=0)
    rendered = (
        control_objects.envoy_proxy(owner),
        control_objects.gateway_class(owner, "Envoy"),
        control_objects.gateway(owner, "Envoy"),
    )
    return ControlEnvoy(
        values=control_objects.envoy_gateway(charts.ENVOY_GATEWAY.version).values,
        objects=[each.manifest for each in rendered],
    )
