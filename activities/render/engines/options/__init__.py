"""Optional features of an engine, each in a module that reads, checks and renders it.

Without the field of a feature, its module changes no template. Parts that every engine
has do not belong here.
"""
