"""The commands, one module each.

A module parses options, calls the other packages and prints. Not here: code that two
commands share (`follow`, `output`, `planning`, `manifests`). No command imports
another.
"""
