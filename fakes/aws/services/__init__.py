"""The services that moto answers, with AWS's refusals and transitional states."""
