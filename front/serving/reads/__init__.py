"""Serves reads: objects, lists, tables and watches, from the projection."""
