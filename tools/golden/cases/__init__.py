"""One module a kind of reference data; make(names, options) writes cases (index.py)."""
