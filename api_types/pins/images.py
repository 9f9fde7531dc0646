"""Every container image that the control plane itself runs on a cluster.

Engine images are given by users. Each image here is the default of a setting, so that a mirror, or a digest, can be used instead. A
reference here may end in a digest too (`name:tag@sha256:...`): take it from the registry when the version is raised, never from elsewhere.
"""

ENDPOINT_PICKER = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.9.0"
DISAGGREGATION_SIDECAR = "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.9.0"
HYDRATION = "python:3.11-slim"
KIT = "ghcr.io/kitops-ml/kitops:v1.11.0"
