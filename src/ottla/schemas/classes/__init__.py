"""Python classes as schemas: the schema of a class, and its objects as values of that schema."""
