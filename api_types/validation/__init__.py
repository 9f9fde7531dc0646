"""Checking what a user sends, before anything else sees it.

`manifests` is the door: documents in, admitted objects or every error at once out. Here: admission, updates, defaults, wording of errors,
JSON Schema. Not here: the fields themselves (`resources`). Nothing in `resources` or `messages` may import this package.
"""
