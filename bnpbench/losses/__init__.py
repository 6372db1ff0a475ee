"""The losses, one file each; every class here that has a kind is one (``bnpbench.registry``)."""
