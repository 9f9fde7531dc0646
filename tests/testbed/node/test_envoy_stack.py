"""The objects of the testbed's Envoy Gateway, compared with those of the product."""

from activities.render.objects.envoy_gateway import CONTROLLER
from api_types.pins import charts, images
from client.local.envoy import envoy_stack
from testbed.cluster import objects as testbed_objects
from testbed.node import envoy_stack as testbed_stack
from testbed.node.images import PICKER, program_of
from testbed.programs.versions import ENVOY_GATEWAY


def test_the_testbed_runs_the_pinned_versions_under_the_pinned_names() -> None:
    stack = envoy_stack()
    service = stack.values["config"]["envoyGateway"]["extensionManager"]["service"]
    host = f"{testbed_stack.EXTENSION}.{testbed_stack.EXTENSION_NAMESPACE}"
    assert (f"v{ENVOY_GATEWAY}", testbed_stack.NAMESPACE, testbed_stack.CONTROLLER) == (
        charts.ENVOY_GATEWAY.version,
        charts.ENVOY_GATEWAY.namespace,
        CONTROLLER,
    )
    assert service["fqdn"] == {
        "hostname": f"{host}.svc.cluster.local",
        "port": testbed_stack.EXTENSION_PORT,
    }
    assert program_of(images.ENDPOINT_PICKER) == PICKER


def test_the_gateway_has_the_name_that_clusters_of_the_testbed_report() -> None:
    gateways = [
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in envoy_stack().objects
        if each["kind"] == "Gateway"
    ]
    assert gateways == [(testbed_objects.NAMESPACE, testbed_objects.GATEWAY)]
