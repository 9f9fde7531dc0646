"""A fake AWS account behind one address, for boto3 with `endpoint_url`.

EC2, IAM, EFS and load balancers are moto's. EKS is this package's own, because moto has
only a part of it. A layer in front of moto adds AWS behaviour that moto lacks:
transitional states, dependencies that block a deletion, tokens that repeat an answer,
and checked signatures. Every call is in the ledger, and a script of faults makes calls
fail.

Start with `fake.FakeAws`. Importing this package needs neither moto nor flask; starting
the fake does, and its error says how to install them.
"""
