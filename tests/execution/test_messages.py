"""What goes between a parent and a child, through a pipe whose writer may be killed or stopped in the middle."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from importlib import import_module
from multiprocessing.connection import Connection

import pytest

from bnpbench.errors import DataError
from bnpbench.execution.child import serve
from bnpbench.execution.messages import Describe, Done, Inbox, Outbox, Pickled, Preflight, Refused, Request


def ends() -> tuple[Inbox, Connection]:
    near, far = multiprocessing.Pipe(duplex=False)
    return Inbox(near), far


def test_messages_arrive_in_their_order_whatever_their_size() -> None:
    inbox, far = ends()
    sent = [1, "two", b"x" * 3_000_000, None, {"five": [5.0]}]

    def send() -> None:
        for message in sent:
            Outbox(far).send(message)
        far.close()

    sender = threading.Thread(target=send)
    sender.start()
    arrived = []
    while not inbox.ended:
        arrived += inbox.messages()
    sender.join()
    assert arrived == sent
    inbox.close()


def test_the_rest_of_a_message_is_not_waited_for() -> None:
    """A process that was stopped in the middle of one kept its reader waiting, whatever --timeout said."""
    inbox, far = ends()
    pickled = pickle.dumps("second")
    framed = len(pickled).to_bytes(8, "big") + pickled
    Outbox(far).send("first")
    for place in range(len(framed)):
        os.write(far.fileno(), framed[place : place + 1])
        assert list(inbox.messages()) == (["first"] if place == 0 else ["second"] if place == len(framed) - 1 else [])
        assert not inbox.ended
    os.write(far.fileno(), framed[:9])
    far.close()
    assert list(inbox.messages()) == []  # it was killed
    assert inbox.ended
    inbox.close()


def _tells_nobody(far: Connection) -> None:
    serve(far, pickle.dumps(Preflight((), None, offline=True)), (), None)


def test_a_child_whose_reader_has_gone_ends_silently(capfd: pytest.CaptureFixture[str]) -> None:
    """It printed a traceback for its answer, one for the refusal that this became, and one of its process."""
    inbox, far = ends()
    inbox.close()
    child = multiprocessing.get_context("fork").Process(target=_tells_nobody, args=(far,))
    child.start()
    child.join()
    far.close()
    assert child.exitcode == 1
    assert capfd.readouterr() == ("", "")


def test_each_request_names_who_answers_it() -> None:
    named = [cls for cls in Request.__subclasses__() if hasattr(cls, "answered_by")]
    assert len(named) == 4
    for cls in named:
        module, _, function = cls.answered_by.partition(":")
        assert callable(getattr(import_module(module), function))
    assert Preflight((), None, offline=True).answer(lambda message: None) == {}
    assert Describe().answer(lambda message: None).hardware.cores >= 1


def test_what_is_pickled_already_arrives_as_the_request() -> None:
    request = Preflight((), None, offline=True)
    assert pickle.loads(pickle.dumps(Pickled(pickle.dumps(request)))) == request


def test_an_answer_is_given_or_raised() -> None:
    assert Done(3).result() == 3
    with pytest.raises(DataError, match="gone"):
        Refused(DataError("gone")).result()
