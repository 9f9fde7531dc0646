"""The services, as functions over one `World`, independent of the protocols.

A refusal is a `CloudError`.
"""
