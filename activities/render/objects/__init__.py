"""What all rendered objects share: names that users rely on, labels, ownership, hashes, copies of Secrets, the order of teardown.

Not here: what a kind of object contains (`engines`, `routing`, `cache`). Imports `inputs`.
"""
