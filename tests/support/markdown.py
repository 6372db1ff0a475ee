"""The repository's pages as tests look at them: fenced blocks, links, headings, commands."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")))

_FENCE = re.compile(
    r"^(?P<fence>`{3,}|~{3,})(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=fence) *$", re.MULTILINE | re.DOTALL
)
_NAMED = re.compile(r"`([\w.-]+\.(?:py|toml))`[^`]*:\n\n\Z")  # ends what stands before a block that shows a file
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6} +(.*?) *#* *$", re.MULTILINE)
_VARIABLE = re.compile(r"\$\{\{[^}]*\}\}|\$\{?\w+\}?")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: its file, from the root of the repository.
        line: where its text begins, from 1.
        language: the word behind its fence.
        text: what stands in it.
        file: the name of the file that it shows, where the sentence before it says so.
    """

    page: str
    line: int
    language: str
    text: str
    file: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def text_of(page: str) -> str:
    """What stands in a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    text = text_of(page)
    for match in _FENCE.finditer(text):
        named = _NAMED.search(text[: match.start()])
        line = text.count("\n", 0, match.start("text")) + 1
        yield Block(page, line, match["language"].strip(), match["text"], named and named[1])


def prose(page: str) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", text_of(page))


def inline_code(page: str) -> list[str]:
    """What stands between backticks, on one line."""
    return [" ".join(match[0].strip("`").split()) for match in _CODE.finditer(prose(page))]


def links(page: str) -> list[str]:
    """The targets of a page's links and pictures."""
    return _LINK.findall(_CODE.sub("", prose(page)))


def anchors(page: str) -> set[str]:
    """What a link into a page can end in, as GitHub makes it of the headings."""
    found, seen = set[str](), Counter[str]()
    for heading in _HEADING.findall(prose(page)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a shell script, without comments, assignments and redirections.

    Variables, and what GitHub Actions puts into ``${{ }}``, are taken for 1.
    """
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(_VARIABLE.sub("1", line), posix=True, punctuation_chars=";&|<>")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words, skipped = list[str](), False
        for word in [*lexer, ";"]:
            if word[0] in ";&|":
                while words and re.match(r"\w+=", words[0]):
                    words.pop(0)
                if words:
                    yield words
                words, skipped = [], False
            elif word[0] in "<>":
                skipped = True
            elif skipped:
                skipped = False
            else:
                words.append(word)


def actions(text: str) -> str:
    """The shell script that the steps of a workflow of GitHub Actions run."""
    return "\n".join(re.findall(r"^\s*-? *run: (.*)$", text, re.MULTILINE))
