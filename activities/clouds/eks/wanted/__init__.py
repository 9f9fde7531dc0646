"""What an EKS cluster consists of, with the arguments of the boto3 clients. Asks nothing. `objects` is the entry."""
