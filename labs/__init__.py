"""The exercises and what checks them."""
