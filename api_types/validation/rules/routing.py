"""Rules for the gateway, services and endpoints."""

import ipaddress
import re

from api_types.base import NAME_MAX
from api_types.limits import RETRY_CODES, SERVICE_ENTRIES_MAX, TIMEOUT_MILLISECONDS
from api_types.pins.charts import (
    ENVOY_GATEWAY,
    ENVOY_GATEWAY_FLOOR,
    TRAEFIK_CHART_FLOOR,
    has_envoy_features,
    isolates_backends,
)
from api_types.resources.inference_gateway import (
    Envoy,
    InferenceGatewaySpec,
    MetalLb,
    Traefik,
)
from api_types.resources.model_endpoint import ModelEndpointSpec
from api_types.resources.model_service import (
    EndpointSelector,
    ModelServiceSpec,
    ServiceRetries,
    ServiceTimeouts,
)
from api_types.text.endpoint_address import address_problems
from api_types.text.endpoint_url import read_url, rewrite_path_problems
from api_types.text.gateway_duration import milliseconds
from api_types.validation.rules.rule import Findings, RuleContext, Rules

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def backend_block_matches(spec: InferenceGatewaySpec, context: RuleContext) -> Findings:
    """Require the block of Traefik, and reject the block of the other backend.

    Envoy needs no block, because each of its fields has a default.
    """
    if spec.backend == "Traefik" and spec.traefik is None:
        yield context.error(f"required because backend is {spec.backend}", "traefik")
    other, block = (
        ("Envoy", spec.envoy)
        if spec.backend == "Traefik"
        else ("Traefik", spec.traefik)
    )
    if block is not None:
        yield context.error(
            f"not allowed because backend is {spec.backend}; remove it, or set backend "
            f"to {other}",
            other.lower(),
        )


def load_balancer_block_is_present(
    backend: Traefik | Envoy, context: RuleContext
) -> Findings:
    """Require addresses if MetalLB has to assign them."""
    if backend.load_balancer == "MetalLB" and backend.metallb is None:
        yield context.error("required because loadBalancer is MetalLB", "metallb")


def chart_is_new_enough(traefik: Traefik, context: RuleContext) -> Findings:
    """Warn of chart versions that confuse services with a shared backend."""
    if len(traefik.version) > NAME_MAX:
        yield context.error(f"must have at most {NAME_MAX} characters", "version")
    elif not isolates_backends(traefik.version):
        yield context.warning(
            f"chart {traefik.version} is older than {TRAEFIK_CHART_FLOOR}, the "
            "oldest that routes reliably",
            "version",
        )


def envoy_chart_is_new_enough(envoy: Envoy, context: RuleContext) -> Findings:
    """Reject chart versions that lack the objects of routes."""
    if len(envoy.version) > NAME_MAX:
        yield context.error(f"must have at most {NAME_MAX} characters", "version")
    elif not has_envoy_features(envoy.version):
        floor = ".".join(map(str, ENVOY_GATEWAY_FLOOR))
        yield context.error(
            f"must be at least {floor}, got {envoy.version}; use {ENVOY_GATEWAY.version}, "
            "the default",
            "version",
        )


def address_pool_is_valid(metallb: MetalLb, context: RuleContext) -> Findings:
    """Reject a pool that is neither a range nor a CIDR.

    MetalLB would reject it long after `apply` succeeded.
    """
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
    # A zone is valid on one machine only, and may be any text.
    if (
        not usable
        or "%" in metallb.address_pool
        or len(metallb.address_pool) > NAME_MAX
    ):
        yield context.error(
            f'must be a range "first-last" or a CIDR, got "{metallb.address_pool}"',
            "addressPool",
        )


def selector_is_not_empty(selector: EndpointSelector, context: RuleContext) -> Findings:
    """Warn of an empty selector, which is rarely intended."""
    if not selector.match_labels:
        yield context.warning(
            "empty; selects every endpoint of the namespace", "matchLabels"
        )


def entries_are_valid(spec: ModelServiceSpec, context: RuleContext) -> Findings:
    """Reject invalid or duplicate names of entries, and more entries than the limit."""
    seen: dict[str, int] = {}
    for number, entry in enumerate(spec.endpoints):
        if entry.name is None:
            continue
        if not _DNS_LABEL.fullmatch(entry.name):
            yield context.error(
                "must be lower-case letters, digits and dashes, such as canary",
                "endpoints",
                number,
                "name",
            )
        if entry.name in seen:
            yield context.error(
                f"is also the name of endpoints[{seen[entry.name]}]",
                "endpoints",
                number,
                "name",
            )
        seen.setdefault(entry.name, number)
    if len(spec.endpoints) > SERVICE_ENTRIES_MAX:
        yield context.error(
            f"must have at most {SERVICE_ENTRIES_MAX} entries, got {len(spec.endpoints)}",
            "endpoints",
        )


def codes_are_of_gateways(retries: ServiceRetries, context: RuleContext) -> Findings:
    """Reject codes that engines return after reading a request, and duplicates."""
    for number, code in enumerate(retries.codes):
        if code not in RETRY_CODES:
            *others, last = map(str, RETRY_CODES)
            first = ", ".join(others)
            yield context.error(
                f"must be {first} or {last}, got {code}; after any "
                "other code an engine has already read the request",
                "codes",
                number,
            )
        elif code in retries.codes[:number]:
            yield context.error(f"{code} is listed twice", "codes", number)


def timeouts_are_bounded(timeouts: ServiceTimeouts, context: RuleContext) -> Findings:
    """Reject a block without timeouts, and timeouts out of bounds.

    The timeout of an attempt may not exceed that of the request.
    """
    given = {
        "request": timeouts.request,
        "backendRequest": timeouts.backend_request,
    }
    times = {
        field: (text, milliseconds(text))
        for field, text in given.items()
        if text is not None
    }
    if not times:
        yield context.error(
            "needs request, backendRequest or both; remove spec.timeouts for no "
            "timeouts"
        )
    shortest, longest = TIMEOUT_MILLISECONDS
    for field, (text, time) in times.items():
        if time and not shortest <= time <= longest:
            bounds = f"between {shortest // 1000}s and {longest // 3_600_000}h"
            yield context.error(
                f"must be {bounds}, or 0s for no limit, got {text}",
                field,
            )
    request, most = times.get("request", ("", 0))
    backend, time = times.get("backendRequest", ("", 0))
    if most and time > most:
        yield context.error(
            f"must be at most spec.timeouts.request, {request}, got {backend}",
            "backendRequest",
        )


def url_is_valid(spec: ModelEndpointSpec, context: RuleContext) -> Findings:
    """Reject a URL without host or port, or with a secret."""
    url = read_url(spec.url)
    for problem in url.errors:
        yield context.error(problem, "url")
    # Only workers know the networks where endpoints may not be.
    for warning in (*url.warnings, *address_problems(url, ())):
        yield context.warning(warning, "url")


def rewrite_path_is_valid(spec: ModelEndpointSpec, context: RuleContext) -> Findings:
    """Warn of a path that no route can have."""
    if spec.rewrite_path is None:
        return
    for problem in rewrite_path_problems(spec.rewrite_path):
        yield context.warning(problem, "rewritePath")


RULES: Rules = {
    InferenceGatewaySpec: (backend_block_matches,),
    Traefik: (load_balancer_block_is_present, chart_is_new_enough),
    Envoy: (load_balancer_block_is_present, envoy_chart_is_new_enough),
    MetalLb: (address_pool_is_valid,),
    ModelServiceSpec: (entries_are_valid,),
    ServiceRetries: (codes_are_of_gateways,),
    ServiceTimeouts: (timeouts_are_bounded,),
    EndpointSelector: (selector_is_not_empty,),
    ModelEndpointSpec: (url_is_valid, rewrite_path_is_valid),
}
