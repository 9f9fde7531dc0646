"""How a hydration Job accesses its source and where it runs.

This is `spec.hydration` of a ModelCache, converted to fields of the Job's pod. The
Secrets and ConfigMaps that it names are in the cache's namespace. Each is copied to the
cluster as a Secret, and exists there only while it is needed. Fields that the spec
omits are not set.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from activities.render.cache.artifact import SOURCE_OCI, Artifact
from activities.render.inputs.findings import Findings
from activities.render.inputs.reader import Reader
from activities.render.objects.manifest import Json, compact
from activities.render.objects.propagation import CONFIG_MAP, SECRET
from api_types import names

DOCKER_CONFIG_TYPE = "kubernetes.io/dockerconfigjson"
_OPAQUE = "Opaque"
_CA = "ca"
_PROXY = "proxy"
_CA_FOLDER = "/etc/modelplane/ca"
_CA_FILE = "ca.crt"
# The variables of OpenSSL and Go, and of the package index client.
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


@dataclass(frozen=True)
class SourceCopy:
    """An object to copy to the cluster: one key, or all of a docker config.

    The name of the copy ends with `purpose`.
    """

    purpose: str
    kind: str
    name: str
    key: str = ""

    @property
    def type(self) -> str:
        return _OPAQUE if self.key else DOCKER_CONFIG_TYPE


@dataclass(frozen=True)
class HydrationOptions:
    """The parsed `spec.hydration`. All fields are empty if the block is absent."""

    http_proxy: str = ""
    https_proxy: str = ""
    no_proxy: tuple[str, ...] = ()
    proxy_secret: SourceCopy | None = None
    ca_bundle: SourceCopy | None = None
    pull_secrets: tuple[SourceCopy, ...] = ()
    service_account: str = ""
    timeout_seconds: int = 0
    disable_xet: bool = False
    tolerations: tuple[Json, ...] = ()

    @property
    def copies(self) -> tuple[SourceCopy, ...]:
        return tuple(
            copy
            for copy in (self.proxy_secret, self.ca_bundle, *self.pull_secrets)
            if copy
        )

    def variables(
        self, name_of: Callable[[SourceCopy], str], *, with_hub: bool
    ) -> list[Json]:
        """Return the environment of the Job's container.

        `with_hub` adds the variables of the hub's client.
        """
        values = {
            "HTTP_PROXY": self.http_proxy,
            "HTTPS_PROXY": self.https_proxy,
            "NO_PROXY": ",".join(self.no_proxy),
        }
        if self.ca_bundle:
            values |= dict.fromkeys(_CA_VARIABLES, f"{_CA_FOLDER}/{_CA_FILE}")
        if with_hub and self.timeout_seconds:
            values |= dict.fromkeys(
                ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT"),
                str(self.timeout_seconds),
            )
        if with_hub and self.disable_xet:
            values["HF_HUB_DISABLE_XET"] = "1"
        variables: list[Json] = [
            {"name": name, "value": value} for name, value in values.items() if value
        ]
        if self.proxy_secret:
            reference = {
                "name": name_of(self.proxy_secret),
                "key": self.proxy_secret.key,
            }
            variables += [
                {"name": name, "valueFrom": {"secretKeyRef": reference}}
                for name in ("HTTP_PROXY", "HTTPS_PROXY")
            ]
        return variables

    def volumes(
        self,
        name_of: Callable[[SourceCopy], str],
        prefix: str = "",
        *,
        as_they_are: bool = False,
    ) -> list[Json]:
        """Return the volumes of the pod.

        With `as_they_are`, a ConfigMap was copied as a ConfigMap and not as a Secret.
        """
        if not self.ca_bundle:
            return []
        items = [{"key": self.ca_bundle.key, "path": _CA_FILE}]
        name = name_of(self.ca_bundle)
        if as_they_are and self.ca_bundle.kind == CONFIG_MAP:
            return [
                {"name": f"{prefix}{_CA}", "configMap": {"name": name, "items": items}}
            ]
        return [
            {"name": f"{prefix}{_CA}", "secret": {"secretName": name, "items": items}}
        ]

    def mounts(self, prefix: str = "") -> list[Json]:
        return (
            [{"name": f"{prefix}{_CA}", "mountPath": _CA_FOLDER, "readOnly": True}]
            if self.ca_bundle
            else []
        )

    def pull_references(self, name_of: Callable[[SourceCopy], str]) -> list[Json]:
        return [{"name": name_of(copy)} for copy in self.pull_secrets]

    def pod_fields(self) -> Json:
        """Return the remaining fields of the pod."""
        return compact(
            serviceAccountName=self.service_account or None,
            tolerations=list(self.tolerations),
        )


def credential_of(artifact: Artifact) -> SourceCopy:
    """Return the credential of an artifact's source.

    Its name is empty if it needs none.
    """
    key = "" if artifact.source == SOURCE_OCI else artifact.credential_key
    return SourceCopy(names.CACHE_CREDENTIAL, SECRET, artifact.credential, key)


def read_options(spec: Mapping[str, Any], findings: Findings) -> HydrationOptions:
    """Read `spec.hydration` and report its problems in `findings`."""
    block = Reader(spec, "spec", findings).object("hydration")
    proxy, bundle = block.object("proxy"), block.object("caBundle")
    for name in ("http", "https"):
        if "@" in proxy.text(name):
            findings.problem(
                proxy.where,
                f"{name} must hold no credentials; "
                "name a Secret with the whole address in urlSecret",
            )
    kind, field = (
        (CONFIG_MAP, "configMapKeyRef")
        if bundle.has("configMapKeyRef")
        else (SECRET, "secretKeyRef")
    )
    return HydrationOptions(
        http_proxy=proxy.text("http"),
        https_proxy=proxy.text("https"),
        no_proxy=proxy.texts("noProxy"),
        proxy_secret=_one_key(proxy, "urlSecret", SECRET, _PROXY),
        ca_bundle=_one_key(bundle, field, kind, _CA),
        pull_secrets=_pull_secrets(block),
        service_account=block.text("serviceAccountName"),
        timeout_seconds=block.integer("timeoutSeconds", 0, 0, 3600),
        disable_xet=block.fields.get("disableXet") is True,
        tolerations=tuple(
            _toleration(Reader(each, f"{block.where}, tolerations", findings))
            for each in block.sequence("tolerations")
        ),
    )


def _pull_secrets(block: Reader) -> tuple[SourceCopy, ...]:
    where = f"{block.where}, imagePullSecrets"
    copies = []
    for index, entry in enumerate(block.sequence("imagePullSecrets")):
        name = Reader(entry, where, block.findings).text("name", required=True)
        copies.append(SourceCopy(f"pull-{index}", SECRET, name))
    return tuple(copies)


def _one_key(block: Reader, field: str, kind: str, purpose: str) -> SourceCopy | None:
    if not block.has(field):
        return None
    reference = block.object(field)
    return SourceCopy(
        purpose,
        kind,
        reference.text("name", required=True),
        reference.text("key", required=True),
    )


def _toleration(toleration: Reader) -> Json:
    operator = toleration.choice("operator", "Equal", ("Exists", "Equal"))
    texts = {name: toleration.text(name) for name in ("key", "value", "effect")}
    return compact(
        operator=operator, **{name: text or None for name, text in texts.items()}
    )
