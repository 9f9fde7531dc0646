"""A fake AWS account behind one address, for boto3 with `endpoint_url`.

EC2, IAM, EFS and load balancers are moto's; EKS is this package's own, since moto has only a part of it. Before moto stands what AWS does
and moto does not: states that take a while, dependencies that refuse a delete, tokens that repeat an answer, signatures that are checked.
Every call is in the ledger, and a script of faults says what goes wrong.

Start with `fake.FakeAws`. Importing this package needs neither moto nor flask; starting the fake does, and says how to install them.
"""
