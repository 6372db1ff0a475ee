"""What a child reports of this machine, beside what is known of it without one."""

from __future__ import annotations

from bnpbench.execution.children import ask
from bnpbench.execution.messages import Describe
from bnpbench.measure.known import known


def test_what_is_known_is_what_a_child_reports() -> None:
    """What a child adds is of no consequence to which results are looked for: the rest is equal."""
    here, reported = known(), ask(Describe())
    assert here is not None
    assert here == reported.model_copy(
        update={
            "software": reported.software.model_copy(update={"cudnn": None, "blas": None}),
            "details": here.details.model_copy(update={"affinity": reported.details.affinity}),
        }
    )
    assert here.software.torch is not None
