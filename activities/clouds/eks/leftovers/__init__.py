"""The leftovers of a cluster at AWS after the deletion of its objects.

`audit` lists and deletes them. `made_by_cluster` has the objects that Kubernetes and
EKS create on their own. `made_by_eks` has the objects that EKS creates for node groups
and should delete with them. `marked` has the objects that Modelplane creates. `foreign`
has objects of other owners in the network, which are listed and never deleted.
"""
