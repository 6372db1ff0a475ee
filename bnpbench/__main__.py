"""``python -m bnpbench``."""

import os
import sys

if not sys.flags.safe_path and "--allow-plugins" not in sys.argv:
    here = sys.path.pop(0)  # the current folder, which may be a stranger's: nothing in it is to be imported
    if os.path.dirname(os.path.dirname(__file__)) == here:
        sys.path.append(here)  # a checkout that is not installed; the children look for bnpbench, too

from bnpbench.cli import main

main()
