"""What is left of a cluster at AWS after its objects were deleted: what it is, whose, and how it goes (provisioning.md 9.3, 9.4).

`audit` lists, `made_by_cluster` knows what Kubernetes and EKS make on their own, `made_by_eks` what EKS makes for node groups and should
delete with them, `marked` what this project makes, `foreign` what others have put into the network: that is named, and never deleted.
"""
