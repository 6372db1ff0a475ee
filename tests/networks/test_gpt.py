"""The language model: its loss by hand, what it costs, and a whole run on a text."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from bnpbench import read_results
from bnpbench.training.accounting import costs
from tests.support.command import called
from tests.support.training import trainer

TEXT = "the quick brown fox jumps over the lazy dog. " * 40
SUITE = """
name = "text"
[train]
dataset = { kind = "text", path = "a.txt", context = 16 }
network = { kind = "gpt", width = 16, depth = 1, heads = 2 }
optimizer = { kind = "adamw", lr = 0.01 }
batch_size = 8
epochs = 2
threads = 1
[sweep]
method = ["vanilla", "ln", "bnp", "bnp+ln"]
"""


@pytest.mark.parametrize("method", ["ln", "bnp"])
def test_loss_and_accuracy_are_of_characters(method: str) -> None:
    ours = trainer(
        dataset={"kind": "text", "context": 32}, train_limit=40, network={"kind": "gpt", "width": 16, "depth": 1},
        method=method, batch_size=8, optimizer={"kind": "adamw", "lr": 0.01},
    )  # fmt: skip
    row = ours.epoch()
    ours.model.eval()
    logs, hits, count = 0.0, 0, 0
    with torch.no_grad():
        for tokens, following in ours.examples.test():
            for chances, label in zip(ours.model(tokens).log_softmax(1), following, strict=True):
                logs -= float(chances.gather(0, label.unsqueeze(0)).sum())
                hits += int((chances.argmax(0) == label).sum())
                count += len(label)
    assert row["test_loss"] == pytest.approx(logs / count, rel=1e-4)
    assert row["test_accuracy"] == pytest.approx(hits / count)
    assert row["test_bits_per_token"] == pytest.approx(logs / count / math.log(2), rel=1e-4)
    assert 0 < row["train_accuracy"] < 1
    assert row["train_loss"] < math.log(103) + 1


def test_products_are_counted_over_all_tokens() -> None:
    """Six times the weights for each token, and 12 T^2 times the width for each block's attention."""
    ours = trainer(
        dataset={"kind": "text", "context": 32}, train_limit=40, network={"kind": "gpt", "width": 16, "depth": 2},
        batch_size=8,
    )  # fmt: skip
    found = costs(ours.settings, ours.examples.input_shape, ours.examples.classes).columns.flops_model
    weights = 103 * 16 + 2 * 12 * 16 * 16 + 16 * 103
    without_first = 2 * 8 * 32 * 103 * 16  # nothing before the embedding wants a gradient
    assert found == 6 * 8 * 32 * weights - without_first + 2 * 12 * 8 * 32 * 32 * 16


def test_a_whole_run_on_a_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "text.toml").write_text(SUITE)
    done = called("run", "text.toml", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = read_results(tmp_path / "out")
    assert list(results.cells.status) == ["ok"] * 4
    last = results.epochs[results.epochs.epoch == 2]
    assert ((last.test_loss / math.log(2)) - last.test_bits_per_token).abs().max() < 1e-12


def test_text_and_numbers_have_networks_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    for old, new, words in (
        (
            'kind = "gpt", width = 16, depth = 1, heads = 2',
            'kind = "fc", hidden = [8]',
            "fc reads numbers, and examples of text are characters of a text; take gpt",
        ),
        (
            '{ kind = "text", path = "a.txt", context = 16 }',
            '"digits"',
            "gpt reads tokens, and examples of digits are numbers (1 x 8 x 8); take ",
        ),
    ):
        (tmp_path / "text.toml").write_text(SUITE.replace(old, new))
        done = called("check", "text.toml", cwd=tmp_path)
        assert done.returncode == 2
        assert words in " ".join(done.stderr.split())
