"""A package: another one of this name that is installed must not win over it."""
