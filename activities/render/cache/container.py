"""The container that fills a volume with an artifact.

It runs in a Job, or as an init container before an engine in its pod. The programs are
constants. The fields of the cache are passed to them as environment variables.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from activities.render.cache.artifact import (
    SOURCE_HUGGINGFACE,
    SOURCE_OCI,
    Artifact,
    BucketFolder,
)
from activities.render.cache.hydration import (
    CLIENT_REQUIREMENTS,
    HUGGINGFACE,
    OCI,
    OCI_BY_TAG,
    S3,
    S3_REQUIREMENTS,
)
from activities.render.cache.options import HydrationOptions, SourceCopy, credential_of
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.manifest import Json

CONTAINER = "hydrate"
ARTIFACT_KEY = "MODELPLANE_ARTEFACT_KEY"
REQUIREMENTS = "MODELPLANE_CLIENT_REQUIREMENTS"
_TARGET = "/mnt/artifact"
# A hidden file, so that no engine loads it as weights.
_WORK = f"{_TARGET}/.modelplane"
_SCRATCH_PATH = "/scratch"
_DOCKER_PATH = "/.docker"
_DOCKER_KEY = ".dockerconfigjson"
_MESSAGE_POLICY = "FallbackToLogsOnError"


@dataclass(frozen=True)
class Hydrator:
    """Builds the container that fills a volume.

    `secret_name` returns the name on the cluster of a Secret that the container reads.
    `volume` is the pod's volume to fill. Names of further volumes start with `prefix`.
    With `as_they_are`, the copies on the cluster keep the kinds of their sources;
    otherwise all of them are Secrets.
    """

    artifact: Artifact
    options: HydrationOptions
    settings: RenderSettings
    secret_name: Callable[[SourceCopy], str]
    volume: str = "artifact"
    name: str = CONTAINER
    prefix: str = ""
    as_they_are: bool = False

    def build(self) -> tuple[Json, list[Json]]:
        """Return the container and the additional volumes that its pod needs."""
        container, volumes = self._python(), list[Json]()
        if self.artifact.source == SOURCE_OCI:
            container, volumes = self._oci()
        container["env"] += self.options.variables(
            self.secret_name, with_hub=self.artifact.source == SOURCE_HUGGINGFACE
        )
        container["volumeMounts"] += self.options.mounts(self.prefix)
        volumes += self.options.volumes(
            self.secret_name, self.prefix, as_they_are=self.as_they_are
        )
        return container, volumes

    def _container(
        self, image: str, command: list[str], environment: dict[str, str]
    ) -> Json:
        common = {
            ARTIFACT_KEY: self.artifact.key,
            "MODELPLANE_TARGET": _TARGET,
            "MODELPLANE_REVISION": self.artifact.revision,
        }
        return {
            "name": self.name,
            "image": image,
            "command": command,
            "env": [
                {"name": name, "value": value}
                for name, value in (*common.items(), *environment.items())
            ],
            "resources": {"requests": {"cpu": "1", "memory": "2Gi"}},
            # Root is allowed, because the root folder of some shared file systems
            # belongs to root.
            "securityContext": {"allowPrivilegeEscalation": False},
            "terminationMessagePolicy": _MESSAGE_POLICY,
            "volumeMounts": [{"name": self.volume, "mountPath": _TARGET}],
        }

    def _python(self) -> Json:
        """Return the container of a Python program.

        A credential is the value of a variable.
        """
        folder = self.artifact.folder
        program, environment, secret = (
            (S3, self._bucket(folder), "MODELPLANE_S3_CREDENTIALS")
            if folder
            else (HUGGINGFACE, self._hub(), "HF_TOKEN")
        )
        if self.settings.pip_index_url:
            environment["PIP_INDEX_URL"] = self.settings.pip_index_url
        container = self._container(
            self.settings.hydration_image, ["python3", "-c", program], environment
        )
        if self.artifact.credential:
            reference = {
                "name": self.secret_name(credential_of(self.artifact)),
                "key": self.artifact.credential_key,
            }
            container["env"].append(
                {"name": secret, "valueFrom": {"secretKeyRef": reference}}
            )
        return container

    def _bucket(self, folder: BucketFolder) -> dict[str, str]:
        return {
            "MODELPLANE_S3_ENDPOINT": folder.endpoint,
            "MODELPLANE_S3_REGION": folder.region,
            "MODELPLANE_S3_BUCKET": folder.bucket,
            "MODELPLANE_S3_PREFIX": folder.prefix,
            "MODELPLANE_S3_ADDRESSING": "path" if folder.path_style else "virtual",
            REQUIREMENTS: S3_REQUIREMENTS,
            # Users who can create a cache must not be able to use the identity of the
            # node.
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _hub(self) -> dict[str, str]:
        variables = {
            "MODELPLANE_REPO": self.artifact.origin,
            REQUIREMENTS: CLIENT_REQUIREMENTS,
            "HF_HOME": f"{_WORK}/huggingface",
            # The last lines of the log become the message of a failed pod.
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        if self.settings.hub_endpoint:
            variables["HF_ENDPOINT"] = self.settings.hub_endpoint
        return variables | _patterns(self.artifact)

    def _oci(self) -> tuple[Json, list[Json]]:
        scratch_on_node = self.artifact.scratch_on_node
        environment = {
            "MODELPLANE_IMAGE": self.artifact.image,
            "MODELPLANE_PLAIN_HTTP": "true" if self.artifact.plain_http else "false",
            "KITOPS_HOME": f"{_SCRATCH_PATH if scratch_on_node else _WORK}/kit",
        }
        program = OCI if self.artifact.revision else OCI_BY_TAG
        container = self._container(
            self.settings.kit_image, ["/bin/sh", "-c", program], environment
        )
        # The image's own user could not write to a root folder that belongs to root.
        container["securityContext"]["runAsUser"] = 0
        volumes: list[Json] = []
        if scratch_on_node:
            volumes.append({"name": f"{self.prefix}scratch", "emptyDir": {}})
            container["volumeMounts"].append(
                {"name": f"{self.prefix}scratch", "mountPath": _SCRATCH_PATH}
            )
        if self.artifact.credential:
            container["env"].append({"name": "DOCKER_CONFIG", "value": _DOCKER_PATH})
            items = [{"key": _DOCKER_KEY, "path": "config.json"}]
            volumes.append(
                {
                    "name": f"{self.prefix}registry",
                    "secret": {
                        "secretName": self.secret_name(credential_of(self.artifact)),
                        "items": items,
                    },
                }
            )
            container["volumeMounts"].append(
                {
                    "name": f"{self.prefix}registry",
                    "mountPath": _DOCKER_PATH,
                    "readOnly": True,
                }
            )
        return container, volumes


def _patterns(artifact: Artifact) -> dict[str, str]:
    """Return the file patterns as JSON lists, without variables for empty lists."""
    patterns = {
        "MODELPLANE_ALLOW_PATTERNS": artifact.allow,
        "MODELPLANE_IGNORE_PATTERNS": artifact.ignore,
    }
    return {name: json.dumps(values) for name, values in patterns.items() if values}
