"""A report in the format that was asked for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from bnpbench.errors import BnpbenchError
from bnpbench.report import render
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]


def test_an_unknown_format_is_a_usage_error(make: Make) -> None:
    made = make()
    made.cell("bnp", rows=epochs([1.0]))
    with pytest.raises(BnpbenchError, match="markdown, csv, json"):
        render(made.read(), "html5")


def test_a_report_needs_no_torch(make: Make) -> None:
    made = make()
    made.cell("bnp", rows=epochs([1.0] * 6))
    made.read()
    program = (
        "import sys; from bnpbench.results import read_results; from bnpbench.report import render, compare\n"
        f"r = read_results({str(made.out)!r}); render(r); compare(r, r).render()\n"
        "sys.exit('torch' in sys.modules or 'scipy.stats' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
