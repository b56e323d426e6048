"""Programs of this checkout. A package: another one that is installed must not win over it."""
