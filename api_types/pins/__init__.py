"""The versions of other projects that one release of the control plane is made for: Helm charts, container images, API versions.

Constants only. A user's wish for another version is a field of ServingStack or a setting; its default is here.
"""
