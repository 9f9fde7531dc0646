"""EndpointDirectory: which endpoints a namespace has, which services select them, and which routes have them."""
