"""References: objects as users write them, label selectors, paths into an object.

An object is written `md/NAME`. The package imports no other package of `fleet_client`
but the errors.
"""
