"""The resource model of `modelplane.ai/v1alpha1`: one module per kind, with its spec and status.

Here: what a user writes and reads, as pydantic models, and the table of kinds. Not here: rules over several fields and error texts
(`validation`), and messages between workflows (`messages`). May import only the modules in the root of `api_types`.
"""
