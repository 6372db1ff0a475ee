"""A document as LaTeX: each table in an environment of its own, for the package ``booktabs``.

What comes from files is escaped letter by letter: no command and no comment is left of it. Letters beyond ASCII stay,
as LaTeX reads UTF-8, but for those of our own that its fonts lack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bnpbench.report.document import Chapter, Section, Table
from bnpbench.text import plain

_ESCAPED = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",  # after \\ it would begin a length
    "]": "{]}",
    "–": r"\textendash{}",
    "−": r"\ensuremath{-}",
    "×": r"\ensuremath{\times}",
    "∞": r"\ensuremath{\infty}",
    "≈": r"\ensuremath{\approx}",
    "±": r"\ensuremath{\pm}",
    "²": r"\ensuremath{^2}",
    "κ": r"\ensuremath{\kappa}",
    "ρ": r"\ensuremath{\rho}",
    "σ": r"\ensuremath{\sigma}",
    "µ": r"\ensuremath{\mu}",
    "μ": r"\ensuremath{\mu}",
    "→": r"\ensuremath{\rightarrow}",
}
_LETTERS = str.maketrans(_ESCAPED)
_MINUS = re.compile(r"(?<![\w.)-])-(?=[\d∞])")
_LIGATURE = re.compile(r"-(?=-)")  # two would become a dash


def latex(text: str) -> str:
    """Text that LaTeX sets as it stands."""
    signed = _MINUS.sub("\N{MINUS SIGN}", plain(text))
    return _LIGATURE.sub("-{}", signed.translate(_LETTERS))


def to_latex(chapters: Sequence[Chapter]) -> str:
    """One ``table`` a table, its section's title, its own, and its notes as caption; other lines are comments."""
    parts = [part for chapter in chapters for section in chapter.sections for part in _section(chapter, section)]
    return (
        "\n\n".join(["% \\usepackage{booktabs}, and \\usepackage[T1]{fontenc} where pdflatex sets it", *parts]) + "\n"
    )


def _section(chapter: Chapter, section: Section) -> Iterable[str]:
    if section.title or section.lines:
        yield "\n".join(f"% {plain(line)}" for line in (section.title, *section.lines) if line)
    for table in section.tables:
        if table.rows:
            yield _table(chapter.suite, section, table)


def _table(suite: str, section: Section, table: Table) -> str:
    named = ": ".join(dict.fromkeys(filter(None, (suite, section.title, table.title))))
    sentences = [f"{named}.", *table.reasons, *table.notes]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{' '.join(map(latex, sentences))}}}",
            rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}",
            r"\toprule",
            _row(table.columns),
            r"\midrule",
            *map(_row, table.texts),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _row(cells: Iterable[str]) -> str:
    return rf"{' & '.join(map(latex, cells))} \\"
