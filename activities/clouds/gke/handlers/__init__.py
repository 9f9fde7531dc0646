"""One handler per kind of object of a GKE cluster: find, create, change and delete.

A handler serves one activity on one object. It stores the operation that it started, so
that the next `look` can report the result. After a crash, the next attempt finds
running operations in the lists of the cloud.
"""
