"""``bnpbench new``: a commented starter suite."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bnpbench.cli.output import show
from bnpbench.errors import BnpbenchError

STARTER = """\
# {name}: what it measures and why.
# Run it:  bnpbench run {file}        See its cells:  bnpbench check {file}

name = "{name}"

[train]                                  # settings of every cell
dataset = "digits"                       # digits, mnist, fashion-mnist, cifar10, ... (bnpbench data)
network = {{ kind = "fc", hidden = [100, 100] }}
optimizer = {{ kind = "sgd", lr = 0.1 }}
epochs = 10
threads = 1                              # of a cell, on a CPU; without it all cores, too many for small networks

[sweep]                                  # each key an axis; every combination is a cell
method = ["vanilla", "bn", "bnp"]
batch_size = [6, 60]
seed = [1, 2, 3]

[[override]]                             # other settings for some cells
when = {{ method = "bn", batch_size = 60 }}
set = {{ optimizer.lr = 0.5 }}

[measure]
interleave = ["method"]                  # measure the methods in turn, so that their times can be compared
warmup_epochs = 1                        # undone and not written

[report]
targets = [0.8, 0.9]                     # test accuracies for the table of time to accuracy

[[claim]]                                # a statement that the report answers from the data
says = "BNP ends above vanilla"
left = {{ method = "bnp" }}
right = {{ method = "vanilla" }}
where = {{ batch_size = [6, 60] }}
metric = "test_accuracy"
difference = {{ at_least = 0.0 }}
"""


def new(name: Annotated[str, typer.Argument(help="The name of the suite; NAME.toml is written here.")]) -> int:
    """Write a commented starter suite."""
    from bnpbench.suite import check_name

    name = name.removesuffix(".toml")
    check_name(name)
    path = Path(f"{name}.toml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(STARTER.format(name=name, file=path))
    except FileExistsError:
        raise BnpbenchError(f"{path} is there already; choose another name or remove it") from None
    except OSError as error:
        raise BnpbenchError(f"{path} cannot be written ({error.strerror})") from error
    show(f"wrote {path}; run it with: bnpbench run {path}")
    return 0
