"""``python -m bnpbench``."""

from bnpbench.cli import main

main()
