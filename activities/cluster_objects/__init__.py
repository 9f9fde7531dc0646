"""What all activities on clusters share: the `ClusterApi` protocol, the kinds we look for, ownership marks, deletion until gone.

Not here: any SDK (`clients`), any choice of what to apply (`render`).
"""
