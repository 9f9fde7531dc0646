"""The commands, one module each: parse options, call the packages beside this one, print.

Not here: logic that two commands share (`follow`, `output`, `planning`, `manifests`, `temporal`, `refs`). No command imports another.
"""
