"""How requests reach the pods of a replica: HTTPRoute, InferencePool, endpoint picker, monitors."""
