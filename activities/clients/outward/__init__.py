"""Guards for everything that the worker connects to and did not choose itself: hubs, registries, token servers, API servers.

Which addresses may be connected to (`addresses`), how connections are opened (`connections`), how much of an answer is read (`answers`),
and requests to hosts that tenants name (`requests`). Not here: what an answer means.
"""
