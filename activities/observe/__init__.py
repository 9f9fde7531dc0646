"""From what a cluster shows to what an owner should know: pure functions over objects as the API server sends them."""
