"""What a person is shown while they wait, on stderr: a live display on a terminal, dated lines elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from bnpbench.text import duration, plain

LINE_EVERY = 30.0  # seconds between dated lines at most, while something goes on
LOOK_SECONDS = 1.0  # between looks at the clock for that
LEAST_NAME = 6  # columns of a job's name in a narrow terminal
REFRESHES = 2  # of a live display a second: each takes a moment from what is measured beside it


@dataclass(frozen=True)
class State:
    """How far something is.

    Attributes:
        title: what it is, such as the name of a suite.
        stage: what goes on as a whole, where nothing is counted yet.
        share: the part that is over, from 0 to 1; None where that is not known.
        counted: the same in words, such as ``15/36 cells``.
        begin, end: on the display's clock; the end is a guess, None where there is none.
        jobs: a line each for what goes on.
    """

    title: str
    stage: str = ""
    share: float | None = None
    counted: str = ""
    begin: float | None = None
    end: float | None = None
    jobs: tuple[str, ...] = ()

    def far(self, now: float) -> str:
        """How far it is, in words."""
        parts = [self.counted] if self.counted else []
        if self.share is not None:
            parts.append(percent(self.share))
        if self.begin is not None:
            parts.append(duration(now - self.begin))
        if self.end is not None and self.end > now:
            parts.append(f"about {duration(self.end - now)} left")
        return ", ".join(parts)


def percent(share: float) -> str:
    """A share in whole percents: 100 only where all is over."""
    return f"{min(int(share * 100), 99) if share < 1 else 100} %"


class Display:
    """Shows nothing.

    Attributes:
        now: its clock, seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now

    def show(self, state: State) -> None:
        """This is how far it is."""

    def say(self, text: str) -> None:
        """Something that stays to be read."""

    def log(self, text: str) -> None:
        """Something that is said only where it stays: a live display shows it in another way."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The end: what is live goes."""


class Lines(Display):
    """A dated line for what is said, for each new stage, and when nothing was said for a while.

    Args:
        now: its clock, seconds.
        date: the time that stands before a line.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, date: Callable[[], datetime] = datetime.now) -> None:
        super().__init__(now)
        self.date, self.said, self.state = date, now(), State("")
        self._told = threading.RLock()
        self._ended, self._watching = threading.Event(), threading.Thread(target=self._watch, daemon=True)

    def show(self, state: State) -> None:
        with self._told:
            fresh = bool(state.stage) and (state.title, state.stage) != (self.state.title, self.state.stage)
            self.state = state
            if fresh:
                self.say(f"{state.title}: {state.stage}")
            else:
                self.look()

    def say(self, text: str) -> None:
        with self._told:
            self.said = self.now()
            print(f"{self.date():%Y-%m-%d %H:%M:%S} {plain(text)}", file=sys.stderr, flush=True)

    log = say

    def look(self) -> None:
        """Say how far it is, if nothing was said for a while."""
        with self._told:
            if (now := self.now()) - self.said >= LINE_EVERY:
                doing = "; ".join(self.state.jobs) or self.state.stage
                far = self.state.far(now)
                self.say(": ".join(filter(None, (self.state.title, doing))) + (f" ({far})" if far else ""))

    def __enter__(self) -> Self:
        self._watching.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watching.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self.look()


class Live(Display):
    """A bar, how far it is, and a line a job, drawn again and again; what is said stands above.

    Args:
        now: its clock, seconds.
        console: rich's, of a terminal.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, console: Any = None) -> None:
        super().__init__(now)
        from rich.console import Console, Group
        from rich.live import Live as RichLive
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column
        from rich.text import Text

        self.state, self._group, self._text = State(""), Group, Text
        self._console = console or Console(stderr=True, markup=False, highlight=False)
        name = Column(no_wrap=True, overflow="ellipsis", max_width=24)
        columns = (TextColumn("{task.description}", markup=False, table_column=name), BarColumn(bar_width=None))
        self._bar = Progress(*columns, TextColumn("{task.fields[percent]}"), console=self._console, expand=True)
        self._task = self._bar.add_task("", total=None, percent="")
        self._live = RichLive(
            get_renderable=self._drawn,
            console=self._console,
            refresh_per_second=REFRESHES,
            transient=True,
            redirect_stdout=False,  # it is kept back, and goes elsewhere
        )

    def show(self, state: State) -> None:
        self.state = state

    def say(self, text: str) -> None:
        self._console.print(self._text(plain(text)))

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _drawn(self) -> Any:
        state = self.state
        total, far = None if state.share is None else 1.0, percent(state.share) if state.share is not None else ""
        self._bar.update(
            self._task, description=plain(state.title), total=total, completed=state.share or 0.0, percent=far
        )
        words = State("", counted=state.counted, begin=state.begin, end=state.end).far(self.now())
        lines = [line for line in (words, state.stage, *map(self._shorter, state.jobs)) if line]
        texts = [self._text(f"  {plain(line)}", no_wrap=True, overflow="ellipsis") for line in lines]
        return self._group(self._bar, *texts)

    def _shorter(self, job: str) -> str:
        """A job's line with as much of what it is as leaves room for how far it is."""
        name, colon, doing = plain(job).rpartition(": ")
        room = self._console.width - 2 - self._text(colon + doing).cell_len
        if room < LEAST_NAME:
            return job
        whose = self._text(name)
        whose.truncate(room, overflow="ellipsis")
        return f"{whose.plain}{colon}{doing}"


def display(*, quiet: bool = False) -> Display:
    """The one for where stderr goes to, which has not begun yet."""
    if quiet:
        return Display()
    terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return Live() if terminal else Lines()


@contextmanager
def waiting(title: str, stage: str, *, quiet: bool = False) -> Iterator[Display]:
    """A display that says at once what is done, before anything is imported that takes its time."""
    shown = display(quiet=quiet)
    shown.show(State(title, stage))
    with shown:
        yield shown


class Count:
    """Tells a display how many of some things are done.

    Args:
        shown: the display.
        title: what is done.
        noun: of the things.
    """

    def __init__(self, shown: Display, title: str, noun: str) -> None:
        self.shown, self.title, self.noun, self.begin = shown, title, noun, shown.now()

    def __call__(self, done: int, of: int, doing: str = "") -> None:
        """So many are done, and this is being done; the first call comes before the first is."""
        now = self.shown.now()
        end = now + (now - self.begin) * (of - done) / done if done else None
        share = done / of if of else None
        self.shown.show(
            State(self.title, "", share, f"{done}/{of} {self.noun}", self.begin, end, (doing,) if doing else ())
        )
