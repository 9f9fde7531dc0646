"""The container that fills a volume with an artifact: that of a Job, or one that runs before an engine in its pod.

The programs are constants, and what a cache says is in variables of the environment.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from activities.render.cache.artifact import SOURCE_HUGGINGFACE, SOURCE_OCI, Artifact, BucketFolder
from activities.render.cache.hydration import CLIENT_REQUIREMENTS, HUGGINGFACE, OCI, OCI_BY_TAG, S3, S3_REQUIREMENTS
from activities.render.cache.options import HydrationOptions, SourceCopy, credential_of
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.manifest import Json

CONTAINER = "hydrate"
ARTIFACT_KEY = "MODELPLANE_ARTEFACT_KEY"
REQUIREMENTS = "MODELPLANE_CLIENT_REQUIREMENTS"
_TARGET = "/mnt/artifact"
# Hidden, so that no engine reads it as weights.
_WORK = f"{_TARGET}/.modelplane"
_SCRATCH_PATH = "/scratch"
_DOCKER_PATH = "/.docker"
_DOCKER_KEY = ".dockerconfigjson"
_MESSAGE_POLICY = "FallbackToLogsOnError"


@dataclass(frozen=True)
class Hydrator:
    """Makes the container. `secret_name` names on the cluster what it reads; `volume` is the pod's volume that it fills.

    Names of further volumes begin with `prefix`. `as_they_are`: what it reads has the kinds of its sources, and is not copied to Secrets.
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
        """Give the container, and the volumes that its pod needs besides the one that it fills."""
        container, volumes = self._oci() if self.artifact.source == SOURCE_OCI else (self._python(), [])
        container["env"] += self.options.variables(self.secret_name, with_hub=self.artifact.source == SOURCE_HUGGINGFACE)
        container["volumeMounts"] += self.options.mounts(self.prefix)
        return container, [*volumes, *self.options.volumes(self.secret_name, self.prefix, as_they_are=self.as_they_are)]

    def _container(self, image: str, command: list[str], environment: dict[str, str]) -> Json:
        common = {
            ARTIFACT_KEY: self.artifact.key,
            "MODELPLANE_TARGET": _TARGET,
            "MODELPLANE_REVISION": self.artifact.revision,
        }
        return {
            "name": self.name,
            "image": image,
            "command": command,
            "env": [{"name": name, "value": value} for name, value in (*common.items(), *environment.items())],
            "resources": {"requests": {"cpu": "1", "memory": "2Gi"}},
            # Root stays allowed: some shared file systems give their root folder to root alone.
            "securityContext": {"allowPrivilegeEscalation": False},
            "terminationMessagePolicy": _MESSAGE_POLICY,
            "volumeMounts": [{"name": self.volume, "mountPath": _TARGET}],
        }

    def _python(self) -> Json:
        """Give the container of a program in Python; a credential is the value of a variable."""
        folder = self.artifact.folder
        program, environment, secret = (
            (S3, self._bucket(folder), "MODELPLANE_S3_CREDENTIALS") if folder else (HUGGINGFACE, self._hub(), "HF_TOKEN")
        )
        if self.settings.pip_index_url:
            environment["PIP_INDEX_URL"] = self.settings.pip_index_url
        container = self._container(self.settings.hydration_image, ["python3", "-c", program], environment)
        if self.artifact.credential:
            reference = {"name": self.secret_name(credential_of(self.artifact)), "key": self.artifact.credential_key}
            container["env"].append({"name": secret, "valueFrom": {"secretKeyRef": reference}})
        return container

    def _bucket(self, folder: BucketFolder) -> dict[str, str]:
        return {
            "MODELPLANE_S3_ENDPOINT": folder.endpoint,
            "MODELPLANE_S3_REGION": folder.region,
            "MODELPLANE_S3_BUCKET": folder.bucket,
            "MODELPLANE_S3_PREFIX": folder.prefix,
            "MODELPLANE_S3_ADDRESSING": "path" if folder.path_style else "virtual",
            REQUIREMENTS: S3_REQUIREMENTS,
            # The identity of a node is not for those who may create a cache.
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _hub(self) -> dict[str, str]:
        return {
            "MODELPLANE_REPO": self.artifact.origin,
            REQUIREMENTS: CLIENT_REQUIREMENTS,
            "HF_HOME": f"{_WORK}/huggingface",
            # The last lines of the log become the message of a failed pod.
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            **({"HF_ENDPOINT": self.settings.hub_endpoint} if self.settings.hub_endpoint else {}),
            **_patterns(self.artifact),
        }

    def _oci(self) -> tuple[Json, list[Json]]:
        scratch_on_node = self.artifact.scratch_on_node
        environment = {
            "MODELPLANE_IMAGE": self.artifact.image,
            "MODELPLANE_PLAIN_HTTP": "true" if self.artifact.plain_http else "false",
            "KITOPS_HOME": f"{_SCRATCH_PATH if scratch_on_node else _WORK}/kit",
        }
        program = OCI if self.artifact.revision else OCI_BY_TAG
        container = self._container(self.settings.kit_image, ["/bin/sh", "-c", program], environment)
        # The image names another user, who could not write where the root folder is root's.
        container["securityContext"]["runAsUser"] = 0
        volumes: list[Json] = []
        if scratch_on_node:
            volumes.append({"name": f"{self.prefix}scratch", "emptyDir": {}})
            container["volumeMounts"].append({"name": f"{self.prefix}scratch", "mountPath": _SCRATCH_PATH})
        if self.artifact.credential:
            container["env"].append({"name": "DOCKER_CONFIG", "value": _DOCKER_PATH})
            items = [{"key": _DOCKER_KEY, "path": "config.json"}]
            volumes.append(
                {"name": f"{self.prefix}registry", "secret": {"secretName": self.secret_name(credential_of(self.artifact)), "items": items}}
            )
            container["volumeMounts"].append({"name": f"{self.prefix}registry", "mountPath": _DOCKER_PATH, "readOnly": True})
        return container, volumes


def _patterns(artifact: Artifact) -> dict[str, str]:
    """Give the patterns of files as the program reads them: JSON lists, and no variable for none."""
    patterns = {"MODELPLANE_ALLOW_PATTERNS": artifact.allow, "MODELPLANE_IGNORE_PATTERNS": artifact.ignore}
    return {name: json.dumps(values) for name, values in patterns.items() if values}
