"""Bridges to other libraries, each an optional extra; importing this package imports none of them."""
