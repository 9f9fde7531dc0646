"""One module per group of object kinds at AWS: find, create, change and delete.

A handler takes parameters from the calls of the desired object and makes calls through
`AwsClients`. A handler never waits.
"""
