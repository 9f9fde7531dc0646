"""The verbs of the command line, one module each: parse options, call the parts below, print.

Not here: logic that two verbs share (`follow`, `output`, `planning`, `manifests`, `temporal`, `refs`).
"""
