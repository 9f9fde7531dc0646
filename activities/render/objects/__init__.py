"""Code that all rendered objects share.

It covers names that users rely on, labels, ownership, hashes, copies of Secrets, and
the order of teardown. The content of each kind of object belongs to `engines`,
`routing` and `cache`. Imports `inputs`.
"""
