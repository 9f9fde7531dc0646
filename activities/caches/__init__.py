"""Activities of ModelCache: pin a revision, stage it on a cluster, delete it."""
