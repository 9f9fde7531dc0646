"""Envoy Gateway: its names and the values of its chart, on clusters of every kind."""

from activities.render.objects.manifest import Json
from api_types.pins import apiversions

CONTROLLER = f"{apiversions.ENVOY_GROUP}/gatewayclass-controller"
ENVOY_PROXY = (apiversions.ENVOY, "EnvoyProxy")


def chart_values(config: Json) -> Json:
    """Return the values of the chart for a configuration of Envoy Gateway."""
    return {
        "config": {"envoyGateway": config},
        # The policy would also apply to definitions of other owners, and conflict with
        # the same policy of the Gateway API's own manifests.
        "crds": {"gatewayAPI": {"safeUpgradePolicy": {"enabled": False}}},
    }
