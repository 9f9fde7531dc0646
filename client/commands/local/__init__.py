"""Commands for the fleet on this machine: up, down, clouds.

`client.local` starts its parts.
"""
