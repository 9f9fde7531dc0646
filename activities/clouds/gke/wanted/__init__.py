"""What a GKE cluster consists of, with the arguments of the Google Cloud clients. Asks nothing. `objects` is the entry."""
