"""One module per kind of object of a GKE cluster: how it is found, created, changed and deleted (spec/provisioning.md 6.4, 6.8).

A handler serves one activity on one object: it keeps the operation that it began, so that the next look can tell how that ended. Whoever
comes after a crash finds operations in the lists of the cloud.
"""
