"""The resource model of `modelplane.ai/v1alpha1`, with one module per kind.

The package has the manifests of users and their statuses as pydantic models, and the
table of kinds. Not here: rules over several fields and error texts (`validation`), and
messages between workflows (`messages`). May import only the modules in the root of
`api_types`.
"""
