"""EndpointDirectory: the endpoints of a namespace, and the services that route them."""
