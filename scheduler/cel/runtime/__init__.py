"""Running a checked selector against one device: values, functions, conversions, and the stack machine."""
