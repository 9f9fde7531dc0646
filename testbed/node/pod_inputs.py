"""The environment, arguments and volumes of a container, as a kubelet computes them."""

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from testbed.cluster.kube import KubeClient, KubeError

Document = dict[str, Any]

_REFERENCE = re.compile(r"\$\((\w+)\)")
_QUOTED_KEY = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class SourceMissing(Exception):
    """An input does not exist yet. A kubelet waits for it."""


def expanded(text: str, environment: Mapping[str, str]) -> str:
    """Replace each $(NAME) by a variable. Unknown names stay, as in Kubernetes."""
    return _REFERENCE.sub(
        lambda found: environment.get(found[1], found[0]),
        text,
    )


def field_of(pod: Document, path: str) -> str:
    """Return the value of a fieldRef."""
    metadata = pod["metadata"]
    if quoted := _QUOTED_KEY.fullmatch(path):
        return str((metadata.get(quoted[1]) or {}).get(quoted[2], ""))
    value: Any = pod
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)


async def environment_of(
    kube: KubeClient, pod: Document, container: Document
) -> dict[str, str]:
    """Return the variables of a container."""
    variables: dict[str, str] = {}
    for each in container.get("env") or ():
        source = each.get("valueFrom") or {}
        if "fieldRef" in source:
            value = field_of(pod, source["fieldRef"]["fieldPath"])
        elif "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            held = await _contents(kube, pod, "Secret", reference["name"])
            value = held[reference["key"]].decode()
        elif source:
            raise ValueError(
                f"variable {each['name']}: the testbed does not support {set(source)}"
            )
        else:
            value = expanded(each.get("value", ""), variables)
        variables[each["name"]] = value
    return variables


async def mounts_of(
    kube: KubeClient, pod: Document, container: Document, folder: Path
) -> dict[str, str]:
    """Write the volumes of a container below `folder`.

    Return the folder of each mount path. Raise SourceMissing if a source does not exist.
    A later change of a source has no effect until the container starts again.
    """
    volumes = {each["name"]: each for each in pod["spec"].get("volumes") or ()}
    mounts = {}
    for mount in container.get("volumeMounts") or ():
        place = folder / mount["name"]
        place.mkdir(parents=True, exist_ok=True)
        for path, content in (await _files(kube, pod, volumes[mount["name"]])).items():
            file = place / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        mounts[mount["mountPath"]] = str(place / mount.get("subPath", ""))
    return mounts


async def _files(kube: KubeClient, pod: Document, volume: Document) -> dict[str, bytes]:
    if "configMap" in volume:
        source = volume["configMap"]
        return _chosen(
            await _contents(
                kube, pod, "ConfigMap", source["name"], source.get("optional")
            ),
            source,
        )
    if "secret" in volume:
        source = volume["secret"]
        return _chosen(
            await _contents(
                kube, pod, "Secret", source["secretName"], source.get("optional")
            ),
            source,
        )
    files: dict[str, bytes] = {}
    for source in (volume.get("projected") or {}).get("sources") or ():
        files |= await _projected(kube, pod, source)
    return files


async def _projected(
    kube: KubeClient, pod: Document, source: Document
) -> dict[str, bytes]:
    namespace = pod["metadata"]["namespace"]
    if token := source.get("serviceAccountToken"):
        account = pod["spec"].get("serviceAccountName", "default")
        return {
            token["path"]: (
                await kube.token(
                    namespace,
                    account,
                    token.get("audience"),
                    token.get("expirationSeconds", 3600),
                )
            ).encode()
        }
    if "configMap" in source:
        return _chosen(
            await _contents(kube, pod, "ConfigMap", source["configMap"]["name"]),
            source["configMap"],
        )
    if "secret" in source:
        return _chosen(
            await _contents(kube, pod, "Secret", source["secret"]["name"]),
            source["secret"],
        )
    return {
        item["path"]: field_of(pod, item["fieldRef"]["fieldPath"]).encode()
        for item in (source.get("downwardAPI") or {}).get("items") or ()
    }


def _chosen(contents: dict[str, bytes], source: Document) -> dict[str, bytes]:
    items = source.get("items")
    if items is None:
        return contents
    return {item["path"]: contents[item["key"]] for item in items}


async def _contents(
    kube: KubeClient, pod: Document, kind: str, name: str, optional: bool | None = None
) -> dict[str, bytes]:
    namespace = pod["metadata"]["namespace"]
    try:
        found = await kube.get("v1", kind, namespace, name)
    except KubeError as error:
        if error.code == httpx.codes.NOT_FOUND and optional:
            return {}
        raise SourceMissing(f"{kind} {namespace}/{name}: {error}") from error
    data = found.get("data") or {}
    if kind == "Secret":
        return {key: base64.b64decode(value) for key, value in data.items()}
    binary = (found.get("binaryData") or {}).items()
    return {key: value.encode() for key, value in data.items()} | {
        key: base64.b64decode(value) for key, value in binary
    }
