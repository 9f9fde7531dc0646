"""Activities of ModelReplica: apply, observe and delete the objects of one replica, and copy the Secrets that its pods name."""
