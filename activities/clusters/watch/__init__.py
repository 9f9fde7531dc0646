"""The watch over one cluster: list once, follow changes, signal owners what is different.

Nothing here polls objects. While a cluster is quiet its watch costs a few idle connections and one small request every few seconds. What an
object means to its owner is decided in `observe`.
"""
