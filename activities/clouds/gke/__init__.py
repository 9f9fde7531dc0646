"""A cluster on Google Kubernetes Engine (provisioning.md 6).

`wanted` says what it consists of and asks nothing. `provider` makes it: with `clients`, the only module that makes calls, `failures`,
`handlers` for each kind of object, `audit` and `sweep`. May import what all clouds share.
"""
