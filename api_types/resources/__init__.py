"""The resource model of `modelplane.ai/v1alpha1`: one module per kind, with its spec and status.

Here: what a user writes and reads, as pydantic models, and the table of kinds. Not here: rules over several fields and error texts
(`validation`), and what workflows tell one another (`messages`). May import the facts in the root of `api_types` only.
"""
