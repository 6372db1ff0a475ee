"""A clock that stands still, and a display that keeps what it is shown."""

from __future__ import annotations

from collections.abc import Callable

from bnpbench.display import Display, State


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


class Kept(Display):
    """Keeps what it is shown, and what is said."""

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        super().__init__(now)
        self.states: list[State] = []
        self.said: list[str] = []

    def show(self, state: State) -> None:
        self.states.append(state)

    def say(self, text: str) -> None:
        self.said.append(text)

    log = say
