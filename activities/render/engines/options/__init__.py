"""What an engine may ask for beside its members, each in a module that reads, checks and renders it.

Without such a field nothing here changes a template. Not here: anything that every engine has.
"""
