"""Finds the public document of a path: the version, and documents of discovery and OpenAPI."""

from importlib import metadata

from front.serving.documents import discovery, openapi, openapi_v2
from front.serving.formats.negotiation import JSON
from front.store.projection import Tree

# kubectl reads the version of Kubernetes whose API the front serves, and `modelplane
# version` that of the front.
_VERSION = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.0+modelplane",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
    "modelplaneVersion": metadata.version("modelplane-temporal"),
}


def public_document(path: str, accept: str) -> Tree | None:
    """Return a discovery document, which is the same for every user."""
    parts = path.strip("/").split("/")
    aggregated = discovery.aggregated_version(accept) if len(parts) == 1 else ""
    match parts:
        case [""]:
            return {
                "paths": [
                    "/api",
                    "/apis",
                    "/healthz",
                    "/livez",
                    "/openapi/v2",
                    "/openapi/v3",
                    "/readyz",
                    "/version",
                ]
            }
        case ["version"]:
            return _VERSION
        case ["api"]:
            return (
                discovery.aggregated(aggregated, core_group=True)
                if aggregated
                else discovery.core()
            )
        case ["api", "v1"]:
            return discovery.core_resources()
        case ["apis"]:
            return (
                discovery.aggregated(aggregated) if aggregated else discovery.groups()
            )
        case ["apis", group] if discovery.has(group):
            return discovery.group(group)
        case ["apis", group, version] if discovery.has(group, version):
            return discovery.resources(group, version)
        case ["openapi", "v2"]:
            return openapi_v2.document()
        case ["openapi", "v3"]:
            return openapi.index()
        case ["openapi", "v3", "apis", group, version] if discovery.has(group, version):
            return openapi.document(group, version)
    return None


def content_type_of(document: Tree) -> str:
    api_version = str(document.get("apiVersion", ""))
    if api_version.startswith(discovery.AGGREGATED):
        version = api_version.rpartition("/")[2]
        return (
            f"application/json;g={discovery.AGGREGATED};v={version};"
            "as=APIGroupDiscoveryList"
        )
    return JSON
