"""`tensorstep reproduce`: tables, JSON, reports, what is kept, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from engine.data.sampling import SampledRows
from engine.experiments import stories
from engine.experiments.stories import KINDS, Plan
from engine.runs.directory import RunDirectory
from engine.service.session import Session
from tests.tui.conftest import Command
from tests.tui.test_mistakes import Refused, refused

__all__ = ["refused"]  # the fixture

STEPS, SEED = 12, 5
SMALL = ("--corpus", "storybook:60", "--seeds", SEED, "--steps", STEPS)


def reproduced(command: Command, *arguments: Any) -> dict[str, Any]:
    code, out, err = command("reproduce", *arguments, "--json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("name", ["lily", "money-bank", "character-logs"])
def test_what_was_published_comes_out(command: Command, name: str):
    found = reproduced(command, name)
    assert {row["verdict"] for row in found["rows"]} <= {"exact", "new"}
    assert set(found["rows"][0]) == {"name", "published", "here", "difference", "verdict"}
    if name == "character-logs":
        epochs = [row for row in found["history"] if row["context"] == 24]
        assert min(epochs, key=lambda row: row["validation_loss"])["epoch"] == 8


@pytest.mark.slow
def test_what_ships(command: Command):
    """Losses by the cards; the grammar reads what the transformer writes, and ten are shown."""
    found = reproduced(command, "storybook", "--shipped")
    rows = {row["name"]: row for row in found["rows"]}
    assert {row["verdict"] for row in rows.values()} <= {"exact", "new"}
    assert len([name for name in rows if name.endswith(("validation loss", "test loss"))]) == 9
    about = "transformer: 200 stories, "
    assert rows[about + "accepted by the grammar"]["here"] >= 0.9
    assert rows[about + "ended by themselves"]["here"] >= 0.9
    assert rows[about + "copies of training stories"]["here"] <= 0.1
    ((_, stories),) = found["sections"]
    assert len(stories) == 10


def test_the_table_and_the_report(command: Command, tmp_path: Path):
    code, out, err = command("reproduce", "lily", "--report", tmp_path / "lily.html")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[2].split() == ["published", "here", "difference", "verdict"]
    at = lines[2].index("verdict")
    assert {line[at:].strip() for line in lines[3:30]} == {"exact"}
    page = (tmp_path / "lily.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "weights of row 0" in page


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs of the tests below are kept: made once."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(autouse=True)
def short_stories(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of twelve steps end none."""
    monkeypatch.setattr(stories, "SAMPLES", 2)
    monkeypatch.setattr(stories, "LONGEST", 12)


def plain_loop(kind: str) -> tuple[list[float], float, float]:
    """The protocol by hand: losses of all steps; validation and test losses after the best of the
    validated steps, here the last or the one in the middle."""
    options = Plan("storybook:60", None, (SEED,), STEPS, STEPS // 2).options(kind, SEED)
    session = Session(options.walk)
    model = session.model(kind)
    windows = session.prepared.windows
    rows = SampledRows(len(windows), 512, SEED)
    rate, decay = (0.001, 0.0001) if kind == "mlp" else (0.003, 0.001)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    losses, best = [], (math.inf, 0.0)
    for step in range(1, STEPS + 1):
        chosen = rows.rows(step)
        loss = nn.functional.cross_entropy(model(windows.contexts[chosen]), windows.targets[chosen])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % (STEPS // 2) == 0:
            best = min(best, (whole(session, model, "validation"), whole(session, model, "test")))
    return losses, *best


def whole(session: Session, model: nn.Module, side: str) -> float:
    windows = session.prepared.windows_of(side)
    with torch.no_grad():
        logits = model(windows.contexts[:])
    return nn.functional.cross_entropy(logits, windows.targets[:]).item()


@pytest.mark.parametrize("kind", KINDS)
def test_stories_equal_a_plain_loop(command: Command, kept: Path, kind: str):
    """Losses of every step, the selected one, and those over whole splits: to 4 digits and more."""
    found = reproduced(command, "tinystories", *SMALL, "--dir", kept)
    losses, validation, test = plain_loop(kind)
    run = RunDirectory(kept / f"{kind}-{SEED}")
    made = [json.loads(line)["loss"] for line in run.metrics.read_text().splitlines()]
    assert made == pytest.approx(losses, rel=1e-5)
    selected = next(r for r in found["history"] if r["model"] == kind and "test" in r)
    assert selected["validation"] == pytest.approx(validation, rel=1e-5)
    assert selected["test"] == pytest.approx(test, rel=1e-5)
    here = {row["name"]: row["here"] for row in found["rows"]}
    assert here[f"{KINDS[kind]}: test perplexity"] == pytest.approx(math.exp(test), rel=1e-4)
    assert here[f"{KINDS[kind]}: stories that end by themselves, of 2"] in (0, 1, 2)
    titles = [title for title, _ in found["sections"]]
    assert f"{KINDS[kind]}: the first 2 of 2 stories, at temperature 0.8" in titles
    assert any("not comparable" in note for note in found["notes"])


def test_what_is_kept_is_gone_on_with(command: Command, kept: Path, refused: Refused):
    """The same runs, not made again; other options in the same place are refused, and so is
    another choice once the test stories were read."""
    first = reproduced(command, "tinystories", *SMALL, "--dir", kept)
    times = {path: path.stat().st_mtime_ns for path in kept.rglob("metrics.jsonl")}
    again = reproduced(command, "tinystories", *SMALL, "--dir", kept)
    assert again["rows"] == first["rows"]
    assert {path: path.stat().st_mtime_ns for path in kept.rglob("metrics.jsonl")} == times
    more = ("--corpus", "storybook:60", "--seeds", SEED, "--steps", STEPS + 1, "--dir", kept)
    assert "was made with other options" in refused("reproduce", "tinystories", *more, code=1)
    choice = kept / "choice.json"
    chosen = json.loads(choice.read_text())
    chosen[f"mlp-{SEED}"]["step"] += 1
    choice.write_text(json.dumps(chosen))
    told = refused("reproduce", "tinystories", *SMALL, "--dir", kept, code=1)
    assert f"another choice of mlp-{SEED}, after which the test stories were read" in told


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nope",), "there is no experiment 'nope': use lily, money-bank"),
        (("lily", "--seeds", "3"), "--seeds goes with tinystories: lily has its own protocol"),
        (("tinystories", "--seeds", "3,3"), "--seeds '3,3' are no seeds"),
        (("tinystories", "--seeds", "x"), "--seeds 'x' are no seeds"),
        (("tinystories", "--sweep", "--steps", 9), "--sweep has its own 600 steps and one seed"),
        (("tinystories", "--sweep", "--seeds", "1,2"), "--sweep has its own 600 steps and one"),
        (("tinystories", "--corpus", "storybook:5"), "5 stories leave none for"),
        (("tinystories", "--lines"), "--lines goes with --text FILE"),
        (("lily", "--dir", "x"), "--dir goes with tinystories and storybook: lily keeps nothing"),
        (("tinystories", "--steps", 0), "--steps 0 is too small: give 1 or more"),
        (("tinystories", "--text", "a", "--corpus", "b"), "--text and --corpus are both given"),
        (("lily", "--report", "x.pdf"), "--report 'x.pdf' is of no known kind"),
        (("lily", "--report", "/nowhere/x.md"), "no report can be written to '/nowhere'"),
    ],
)
def test_refused(refused: Refused, arguments: tuple[Any, ...], sentence: str):
    assert sentence in refused("reproduce", *arguments)
