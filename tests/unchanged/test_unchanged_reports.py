"""Reports of kept results are, to the last digit shown, what they were."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from bnpbench import read_results
from bnpbench.report.data import views
from bnpbench.report.figures import figures
from tests.support.command import called

MEASURED = Path(__file__).parent / "measured"
NAMES = ["hessian", "quick", "timing"]
FORMATS = {"markdown": "md", "csv": "csv", "json": "json", "html": "html"}
BASELINE = Path(__file__).parents[2] / "reports" / "baseline"
_LONG = re.compile(r"-?\d+\.\d{8,}(?:e[-+]?\d+)?")


def rounded(text: str) -> str:
    """With nine digits of each number: the last few are another processor's."""
    return _LONG.sub(lambda number: format(float(number[0]), ".9g"), text)


def without_scripts(page: str) -> str:
    """Without the bundled scripts and their licences, which are other packages', and the style and the script, which
    are files of this one."""
    for pattern in (
        r'(<script type="application/gzip\+base64"[^>]*>).*?(</script>)',
        r"(<script>).*?(</script>)",
        r"(<style>).*?(</style>)",
        r"(<details><summary>)(?:plotly|itables) .*?(</details>)",
    ):
        page, count = re.subn(pattern, r"\1\2", page, flags=re.DOTALL)
        assert count, pattern
    return page


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_a_report_has_not_changed(name: str, form: str, snapshot: Callable[[str, str], None]) -> None:
    done = called("report", name, "--format", form, cwd=MEASURED)
    assert (done.returncode, done.stderr) == (0, "")
    text = without_scripts(done.stdout) if form == "html" else done.stdout
    snapshot(f"reports/{name}.{FORMATS[form]}", rounded(text))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_drawn_has_not_changed(name: str, snapshot: Callable[[str, str], None]) -> None:
    drawn = [asdict(figure) for figure in figures(views(read_results(MEASURED / name)))]
    lines = re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda row: f"[{' '.join(row[1].split())}]", json.dumps(drawn, indent=1))
    snapshot(f"figures/{name}.json", rounded(lines) + "\n")


@pytest.mark.parametrize("form", ["markdown", "csv", "json"])
def test_a_comparison_with_the_baseline_has_not_changed(form: str, snapshot: Callable[[str, str], None]) -> None:
    done = called("compare", BASELINE, "regression", "--across-machines", "--format", form, cwd=MEASURED)
    assert (done.returncode, done.stderr) == (0, "")
    snapshot(f"reports/comparison.{FORMATS[form]}", rounded(done.stdout))
