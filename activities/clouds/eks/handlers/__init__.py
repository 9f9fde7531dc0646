"""One module for each group of kinds of objects at AWS: how they are found, created, changed and deleted (provisioning.md 7.7, 7.9).

A handler takes parameters from the calls of the desired object and makes calls through `AwsClients`. It waits for nothing.
"""
