"""Admission: checks of users' input before any workflow receives it.

`manifests` has the public functions: they take documents, and return admitted objects
or raise all errors at once. The package covers admission, updates, defaults, wording of
errors, and the JSON Schema. Not here: the fields themselves (`resources`). Modules in
`resources` and `messages` may not import this package.
"""
