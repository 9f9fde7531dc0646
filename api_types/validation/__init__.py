"""Admission: checks of what a user sends, before any workflow gets it.

`manifests` has the public functions: documents in, admitted objects or all errors at once out. Here: admission, updates, defaults, wording
of errors, JSON Schema. Not here: the fields themselves (`resources`). Nothing in `resources` or `messages` may import this package.
"""
