"""Rules for how the Jobs of a cache reach its source."""

import re

from api_types.model_sources import is_port
from api_types.resources.model_cache import ModelCacheSpec
from api_types.resources.parts.hydration import CaBundle, PodToleration, Proxy
from api_types.validation.rules.metadata import is_label_value, label_key_problem
from api_types.validation.rules.rule import Findings, RuleContext, Rules, set_fields

_PROXY = re.compile(r"https?://([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?/?")
_EXCEPTION = re.compile(r"\*|[A-Za-z0-9.*\[:][A-Za-z0-9._:\[\]/-]*")


def proxy_can_be_used(proxy: Proxy, context: RuleContext) -> Findings:
    """Require an address, and refuse one that would put a credential into histories; no address is quoted, for it may be such a one."""
    for field, url in (("http", proxy.http), ("https", proxy.https)):
        if url and "@" in url:
            yield context.error(
                "credentials do not belong here: specs are kept in histories; put the whole address into a Secret and name it in urlSecret",
                field,
            )
        elif url and not _is_proxy(url):
            yield context.error("not the address of a proxy; write http://host:port or https://host:port and nothing after it", field)
    literal = set_fields(proxy, "http", "https")
    if proxy.url_secret and literal:
        yield context.error(f"used for http and https alike; leave out {' and '.join(literal)}", "urlSecret")
    if not proxy.url_secret and not literal:
        yield context.error("names no proxy; give http, https or urlSecret")
    for index, exception in enumerate(proxy.no_proxy or ()):
        if not _EXCEPTION.fullmatch(exception):
            yield context.error("not a host, domain, address or network, such as .svc or 10.0.0.0/8", "noProxy", index)


def _is_proxy(url: str) -> bool:
    found = _PROXY.fullmatch(url)
    return found is not None and is_port(found["port"])


def bundle_has_one_source(bundle: CaBundle, context: RuleContext) -> Findings:
    """Allow one place to read the certificates from."""
    got = set_fields(bundle, "config_map_key_ref", "secret_key_ref")
    if len(got) != 1:
        yield context.error(f"give exactly one of configMapKeyRef, secretKeyRef; got {', '.join(got) or 'none'}")


def pod_toleration_is_valid(toleration: PodToleration, context: RuleContext) -> Findings:
    """Refuse what an API server would refuse of the Job."""
    if toleration.operator == "Equal" and not toleration.key:
        yield context.error("operator Equal (the default) needs a key; use operator: Exists to match all taints")
    if toleration.key and (problem := label_key_problem(toleration.key)):
        yield context.error(problem, "key")
    if toleration.operator == "Exists" and toleration.value:
        yield context.error("operator Exists takes no value", "value")
    elif toleration.value and not is_label_value(toleration.value):
        yield context.error("not the value of a taint; use up to 63 letters, digits, '-', '_' and '.'", "value")


def hub_settings_have_an_effect(spec: ModelCacheSpec, context: RuleContext) -> Findings:
    """Warn of settings of the hub's client for a source that has another one."""
    if spec.hydration is None or spec.source == "HuggingFace":
        return
    if spec.hydration.timeout_seconds is not None:
        yield context.warning(f"setting has no effect on source {spec.source}", "hydration", "timeoutSeconds")
    if spec.hydration.disable_xet:
        yield context.warning(f"setting has no effect on source {spec.source}", "hydration", "disableXet")


RULES: Rules = {
    ModelCacheSpec: (hub_settings_have_an_effect,),
    Proxy: (proxy_can_be_used,),
    CaBundle: (bundle_has_one_source,),
    PodToleration: (pod_toleration_is_valid,),
}
