"""What is true of every rendered object: labels, ownership, hashes, the rendered set, copies of Secrets, the order of teardown.

Not here: what a kind of object contains (`engines`, `routing`, `cache`). Imports `inputs`.
"""
