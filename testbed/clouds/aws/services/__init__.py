"""The services that moto answers: what it forgives and AWS does not, states that take a while, and what is left in them."""
