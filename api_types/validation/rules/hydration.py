"""Rules for the network access of a cache's Jobs."""

import re

from api_types.model_sources import is_port
from api_types.resources.model_cache import ModelCacheSpec
from api_types.resources.parts.hydration import CaBundle, PodToleration, Proxy
from api_types.validation.rules.metadata import is_label_value, label_key_problem
from api_types.validation.rules.rule import Findings, RuleContext, Rules, set_fields

_PROXY = re.compile(
    r"https?://([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"
    r"(:(?P<port>[0-9]{1,5}))?/?"
)
_EXCEPTION = re.compile(r"\*|[A-Za-z0-9.*\[:][A-Za-z0-9._:\[\]/-]*")


def proxy_can_be_used(proxy: Proxy, context: RuleContext) -> Findings:
    """Require a valid address, and reject one with a credential.

    Specs are kept in histories. Errors quote no address, because it may contain a
    credential.
    """
    for field, url in (("http", proxy.http), ("https", proxy.https)):
        if url and "@" in url:
            yield context.error(
                "credentials do not belong here: specs are kept in histories; put "
                "the whole address into a Secret and name it in urlSecret",
                field,
            )
        elif url and not _is_proxy(url):
            yield context.error(
                "not the address of a proxy; write http://host:port or "
                "https://host:port without a path",
                field,
            )
    literal = set_fields(proxy, "http", "https")
    if proxy.url_secret and literal:
        yield context.error(
            f"is used for both http and https; remove {' and '.join(literal)}",
            "urlSecret",
        )
    if not proxy.url_secret and not literal:
        yield context.error("names no proxy; set http, https or urlSecret")
    for index, exception in enumerate(proxy.no_proxy or ()):
        if not _EXCEPTION.fullmatch(exception):
            yield context.error(
                "not a host, domain, address or network, such as .svc or 10.0.0.0/8",
                "noProxy",
                index,
            )


def _is_proxy(url: str) -> bool:
    found = _PROXY.fullmatch(url)
    return found is not None and is_port(found["port"])


def bundle_has_one_source(bundle: CaBundle, context: RuleContext) -> Findings:
    """Require exactly one source of the certificates."""
    got = set_fields(bundle, "config_map_key_ref", "secret_key_ref")
    if len(got) != 1:
        shown = ", ".join(got) or "none"
        yield context.error(
            f"set exactly one of configMapKeyRef, secretKeyRef; got {shown}"
        )


def pod_toleration_is_valid(
    toleration: PodToleration, context: RuleContext
) -> Findings:
    """Reject tolerations that an API server would reject in the Job."""
    if toleration.operator == "Equal" and not toleration.key:
        yield context.error(
            "operator Equal (the default) needs a key; "
            "use operator: Exists to match all taints"
        )
    problem = label_key_problem(toleration.key) if toleration.key else ""
    if problem:
        yield context.error(problem, "key")
    if toleration.operator == "Exists" and toleration.value:
        yield context.error("operator Exists takes no value", "value")
    elif toleration.value and not is_label_value(toleration.value):
        yield context.error(
            "not the value of a taint; use up to 63 letters, digits, '-', '_' and '.'",
            "value",
        )


def hub_settings_have_an_effect(spec: ModelCacheSpec, context: RuleContext) -> Findings:
    """Warn of Hugging Face settings for another source."""
    if spec.hydration is None or spec.source == "HuggingFace":
        return
    if spec.hydration.timeout_seconds is not None:
        yield context.warning(
            f"setting has no effect on source {spec.source}",
            "hydration",
            "timeoutSeconds",
        )
    if spec.hydration.disable_xet:
        yield context.warning(
            f"setting has no effect on source {spec.source}", "hydration", "disableXet"
        )


RULES: Rules = {
    ModelCacheSpec: (hub_settings_have_an_effect,),
    Proxy: (proxy_can_be_used,),
    CaBundle: (bundle_has_one_source,),
    PodToleration: (pod_toleration_is_valid,),
}
