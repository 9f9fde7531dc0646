"""EKS: clusters, node groups, add-ons, access, updates and versions, with the states and refusals of AWS. It is no part of moto."""
