"""The reference data under tests/golden; see __main__.py."""
