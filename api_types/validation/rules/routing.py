"""What the gateway, services and endpoints must keep."""

import ipaddress
import re

from api_types.charts import TRAEFIK_CHART_FLOOR
from api_types.resources.inference_gateway import InferenceGatewaySpec, MetalLb, Traefik
from api_types.resources.model_endpoint import ModelEndpointSpec
from api_types.resources.model_service import EndpointSelector
from api_types.validation.endpoint_url import read_url, rewrite_path_problems
from api_types.validation.rules.rule import Findings, Here, Rules

_CHART_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


def backend_block_is_present(spec: InferenceGatewaySpec, here: Here) -> Findings:
    """Ask for the block of the backend that is named."""
    if spec.traefik is None:
        yield here.fault(f"required because backend is {spec.backend}", "traefik")


def load_balancer_block_is_present(traefik: Traefik, here: Here) -> Findings:
    """Ask for addresses where MetalLB has to hand them out."""
    if traefik.load_balancer == "MetalLB" and traefik.metallb is None:
        yield here.fault("required because loadBalancer is MetalLB", "metallb")


def chart_is_new_enough(traefik: Traefik, here: Here) -> Findings:
    """Warn of gateways that mix up services which share a backend."""
    found, floor = _CHART_VERSION.match(traefik.version), _CHART_VERSION.match(TRAEFIK_CHART_FLOOR)
    if found and floor and tuple(map(int, found.groups())) < tuple(map(int, floor.groups())):
        yield here.warn(f"chart {traefik.version} is older than {TRAEFIK_CHART_FLOOR}, the oldest that routes reliably", "version")


def addresses_can_be_read(metallb: MetalLb, here: Here) -> Findings:
    """Refuse a pool that is neither a range nor a CIDR; MetalLB would, long after `apply` succeeded."""
    first, dash, last = (part.strip() for part in metallb.address_pool.partition("-"))
    try:
        if not dash:
            ipaddress.ip_network(first, strict=False)
            usable = "/" in first
        else:
            low, high = ipaddress.ip_address(first), ipaddress.ip_address(last)
            usable = low.version == high.version and int(low) <= int(high)
    except ValueError:
        usable = False
    if not usable:
        yield here.fault(f'must be a range "first-last" or a CIDR, got "{metallb.address_pool}"', "addressPool")


def selector_selects_something(selector: EndpointSelector, here: Here) -> Findings:
    """Warn of an empty selector, which is seldom meant."""
    if not selector.match_labels:
        yield here.warn("empty; selects every endpoint of the namespace", "matchLabels")


def url_can_be_reached(spec: ModelEndpointSpec, here: Here) -> Findings:
    """Refuse a URL without host or port, and one that holds a secret."""
    url = read_url(spec.url)
    for problem in url.refusals:
        yield here.fault(problem, "url")
    for doubt in url.doubts:
        yield here.warn(doubt, "url")


def rewrite_path_can_be_used(spec: ModelEndpointSpec, here: Here) -> Findings:
    """Warn of a path that no route can carry; it is stored, and the endpoint reports it."""
    for problem in rewrite_path_problems(spec.rewrite_path) if spec.rewrite_path is not None else ():
        yield here.warn(problem, "rewritePath")


RULES: Rules = {
    InferenceGatewaySpec: (backend_block_is_present,),
    Traefik: (load_balancer_block_is_present, chart_is_new_enough),
    MetalLb: (addresses_can_be_read,),
    EndpointSelector: (selector_selects_something,),
    ModelEndpointSpec: (url_can_be_reached, rewrite_path_can_be_used),
}
