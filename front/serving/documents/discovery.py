"""Discovery of groups, versions and resources, in the aggregated and the old form."""

from itertools import chain
from typing import Any

from api_types.resources.kinds import SERVED, KindInfo
from front.serving.formats.negotiation import accepted
from front.serving.requests import GROUP_VERSIONS, SCALE, STATUS, subresources, verbs

Json = dict[str, Any]

AGGREGATED = "apidiscovery.k8s.io"
AUTHENTICATION_GROUP, ACCESS_GROUP, REVIEW_VERSION = (
    "authentication.k8s.io",
    "authorization.k8s.io",
    "v1",
)
REVIEWS = {
    AUTHENTICATION_GROUP: {"selfsubjectreviews": "SelfSubjectReview"},
    ACCESS_GROUP: {
        "selfsubjectaccessreviews": "SelfSubjectAccessReview",
        "selfsubjectrulesreviews": "SelfSubjectRulesReview",
    },
}
"""The kinds of reviews that users create about themselves, by group and resource."""
_SCALE_KIND = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
_READ = ["get"]


def groups() -> Json:
    """Return `/apis` in the old form."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name) for name in _groups()],
    }


def group(name: str) -> Json:
    """Return `/apis/GROUP`."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def _group(name: str) -> Json:
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version}
        for version in _versions(name)
    ]
    return {
        "name": name,
        "versions": versions,
        "preferredVersion": versions[0],
    }


def resources(name: str, version: str) -> Json:
    """Return `/apis/GROUP/VERSION`."""
    if name in REVIEWS:
        listed = _reviews(name)
    else:
        listed = list(chain.from_iterable(map(_entries, _kinds(name, version))))
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{name}/{version}",
        "resources": listed,
    }


def has(name: str, version: str = "") -> bool:
    """Return whether a group, and a version of it, is served."""
    return name in _groups() and (not version or version in _versions(name))


def core() -> Json:
    """Return `/api`. No resource of the core group is served."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def core_resources() -> Json:
    """Return `/api/v1`, which clients read without looking at `/api`."""
    return {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [],
    }


def aggregated_version(accept: str) -> str:
    """Return the version of aggregated discovery that a client wants.

    An empty string means the old form.
    """
    for entry in accepted(accept):
        for version in ("v2", "v2beta1"):
            if entry.is_a("APIGroupDiscoveryList", AGGREGATED, version):
                return version
        if entry.is_json and "as" not in entry.parameters:
            return ""
    return ""


def aggregated(version: str, *, core_group: bool = False) -> Json:
    """Return `/apis` or `/api` in the aggregated form."""
    items = [] if core_group else [_aggregated_group(name) for name in _groups()]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"{AGGREGATED}/{version}",
        "metadata": {},
        "items": items,
    }


def _groups() -> list[str]:
    return [*dict.fromkeys(group for group, _ in GROUP_VERSIONS), *REVIEWS]


def _versions(name: str) -> list[str]:
    if name in REVIEWS:
        return [REVIEW_VERSION]
    return [version for group, version in GROUP_VERSIONS if group == name]


def _kinds(name: str, version: str) -> list[KindInfo]:
    return [info for info in SERVED if (info.group, info.version) == (name, version)]


def _entries(info: KindInfo) -> list[Json]:
    entries: list[Json] = [
        {
            "name": info.plural,
            "singularName": info.singular,
            "namespaced": info.namespaced,
            "kind": info.kind,
            "verbs": verbs(info),
            "shortNames": [info.short],
            "categories": ["modelplane"],
        }
    ]
    if STATUS in subresources(info):
        entries.append(_subresource(info, STATUS, {"kind": info.kind}, _READ))
    if SCALE in subresources(info):
        entries.append(
            _subresource(info, SCALE, _SCALE_KIND, ["get", "patch", "update"])
        )
    return entries


def _subresource(info: KindInfo, name: str, kind: Json, allowed: list[str]) -> Json:
    return {
        "name": f"{info.plural}/{name}",
        "singularName": "",
        "namespaced": info.namespaced,
        **kind,
        "verbs": allowed,
    }


def _reviews(name: str) -> list[Json]:
    return [
        {
            "name": plural,
            "singularName": "",
            "namespaced": False,
            "kind": kind,
            "verbs": ["create"],
        }
        for plural, kind in REVIEWS[name].items()
    ]


def _aggregated_group(name: str) -> Json:
    versions = [
        {
            "version": version,
            "resources": _aggregated_resources(name, version),
            "freshness": "Current",
        }
        for version in _versions(name)
    ]
    return {"metadata": {"name": name}, "versions": versions}


def _aggregated_resources(name: str, version: str) -> list[Json]:
    whole: dict[str, Json] = {}
    for entry in resources(name, version)["resources"]:
        plural, _, subresource = entry["name"].partition("/")
        kind = {
            "group": entry.get("group", name),
            "version": entry.get("version", version),
            "kind": entry["kind"],
        }
        if subresource:
            below = {
                "subresource": subresource,
                "responseKind": kind,
                "verbs": entry["verbs"],
            }
            whole[plural].setdefault("subresources", []).append(below)
            continue
        whole[plural] = {
            "resource": plural,
            "responseKind": kind,
            "scope": "Namespaced" if entry["namespaced"] else "Cluster",
            "singularResource": entry["singularName"] or entry["kind"].lower(),
            "verbs": entry["verbs"],
            **{key: entry[key] for key in ("shortNames", "categories") if key in entry},
        }
    return list(whole.values())
