"""The versions of other projects that a release of the control plane is made for.

They are Helm charts, container images and API versions, all constants. Users choose
another version with a field of ServingStack or with a setting, whose defaults are here.
"""
