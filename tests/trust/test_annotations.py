"""Annotations that would exceed the rights of a pod's InferenceClass are rejected.

Webhooks, node agents and container runtimes read such annotations.
"""

import pytest

from activities.render.inputs.findings import InvalidSpec
from activities.render_settings import render_settings
from api_types import labels
from api_types.sections.workloads import WorkloadSettings
from api_types.settings import Settings
from tests.activities.render import builders as rendering

# Rejected keys, taken from the documentation of each runtime.
RUNTIME_ANNOTATIONS = [
    "io.kubernetes.cri-o.Devices",
    "io.kubernetes.cri-o.ShmSize",
    "io.kubernetes.cri-o.userns-mode",
    "io.kubernetes.cri-o.UnifiedCgroup.engine",
    "seccomp-profile.kubernetes.cri-o.io",
    "seccomp-profile.kubernetes.cri-o.io/POD",
    "seccomp-profile.kubernetes.cri-o.io/engine",
    "devices.crio.io",
    "unified-cgroup.crio.io/engine",
    "cpu-quota.crio.io",
    "io.containers.trace-syscall",
    "run.oci.hooks.stdout",
    "io.katacontainers.config.hypervisor.kernel_params",
    "dev.gvisor.spec.mount.cache.source",
    "cdi.k8s.io/gpu",
    "nvidia.cdi.k8s.io/engine",
    "devices.nri.io",
    "mounts.nri.io/container.engine",
    "resource-policy.nri.io/cpu",
    "balloon.balloons.resource-policy.nri.io/pod",
    "ulimits.nri.containerd.io/container.engine",
    "mounts.noderesource.dev/container.engine",
    "k8s.v1.cni.cncf.io/networks",
    "v1.multus-cni.io/default-network",
    "container.apparmor.security.beta.kubernetes.io/engine",
    "seccomp.security.alpha.kubernetes.io/pod",
    "container.seccomp.security.alpha.kubernetes.io/engine",
    "pod-group-name",
]


def an_annotation_of(entry: str) -> str:
    """Return an annotation key that matches an entry of the list."""
    return f"{entry.removeprefix('*.')}engine" if entry.endswith(("/", ".")) else entry


@pytest.mark.parametrize(
    "key", [*map(an_annotation_of, labels.REFUSED_ANNOTATIONS), *RUNTIME_ANNOTATIONS]
)
def test_annotations_that_change_the_pod_are_refused_and_the_operator_may_allow_them(
    key: str,
) -> None:
    engine = rendering.an_engine("main", rendering.a_member(annotations={key: "x"}))
    with pytest.raises(
        InvalidSpec, match=r"is not allowed.*workloads\.refusedAnnotations"
    ):
        rendering.render(engine)
    assert (
        rendering.pod(rendering.render(engine, settings={"refused_annotations": ()}))[
            "metadata"
        ]["annotations"][key]
        == "x"
    )


def test_the_operators_list_replaces_the_default() -> None:
    settings = Settings(
        workloads=WorkloadSettings(refused_annotations=("team.example/",))
    )
    assert render_settings(settings).refused_annotations == ("team.example/",)


@pytest.mark.parametrize("entry", labels.REFUSED_ANNOTATIONS)
def test_every_default_entry_is_valid_in_the_settings(entry: str) -> None:
    assert WorkloadSettings(refused_annotations=(entry,)).refused_annotations == (
        entry,
    )


@pytest.mark.parametrize(
    "key",
    [
        "sidecar.istio.io/inject",
        "prometheus.io/scrape",
        "linkerd.io/inject",
        "team.example/owner",
        # Keys that resemble those of the list, but do not match.
        "notnri.io/x",
        "team.example/nri.io",
        "io.kubernetes.cri-other",
        "pod-group-name-of-team",
        "x.v1.multus-cni.io/y",
    ],
)
def test_other_annotations_pass(key: str) -> None:
    engine = rendering.an_engine("main", rendering.a_member(annotations={key: "x"}))
    assert (
        rendering.pod(rendering.render(engine))["metadata"]["annotations"][key] == "x"
    )
