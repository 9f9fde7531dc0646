"""Guards for connections to servers that the worker did not choose itself.

Such servers are hubs, registries, token servers and API servers. The modules decide
which addresses are allowed (`addresses`), open connections (`connections`), limit the
size of responses (`answers`), and send requests to hosts that tenants name
(`requests`). They do not interpret responses.
"""
