"""A cluster on Amazon EKS (provisioning.md 7).

`wanted` says what it consists of and asks nothing. `provider` makes it: with `clients`, the only
module that makes calls, `failures`, `handlers` for each kind of object, and `leftovers`. May import what all clouds share.
"""
