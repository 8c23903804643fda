"""`tensorstep learned`: what is read of checkpoints and runs, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.experiments.runs import train
from engine.service.run_options import RunOptions
from engine.service.saved import SHIPPED_IN
from tests.tui.conftest import Command
from tests.tui.test_mistakes import Refused, refused

__all__ = ["refused"]  # the fixture

HEADS = ("checkpoint:one-head", "checkpoint:four-heads")


def sections(command: Command, *arguments: Any) -> dict[str, list[str]]:
    code, out, err = command("learned", *arguments, "--json")
    assert (code, err) == (0, "")
    return dict(json.loads(out)["sections"])


def nearest(name: str, word: str) -> list[tuple[str, float]]:
    """By numpy, from the files alone: the five nearest words, and their cosines."""
    folder = SHIPPED_IN / name
    itos = json.loads((folder / "tokenizer.json").read_text())["itos"]
    table = load_file(folder / "model.safetensors")["token_embedding.weight"].astype(float)
    own = table[itos.index(word)]
    with np.errstate(invalid="ignore"):  # <PAD> is a row of zeros
        cosines = table @ own / (np.linalg.norm(table, axis=1) * np.linalg.norm(own))
    found = [
        (itos[i], float(cosines[i]))
        for i in np.argsort(-np.nan_to_num(cosines, nan=-2))
        if itos[i] != word and not itos[i].startswith("<")
    ]
    return found[:5]


def test_near_words_are_those_of_the_files(command: Command):
    found = sections(command, *HEADS, "--word", "grandma")
    lines = found["nearest to 'grandma', by cosine"]
    names = ["one-head before", "one-head", "four-heads before", "four-heads"]
    assert re.split(r"  +", lines[0].strip()) == names
    for column, name in ((1, "one-head"), (3, "four-heads")):
        told = [re.findall(r"([+-]\d\.\d{3}) (\S+)", line)[column] for line in lines[1:]]
        assert [word for _, word in told] == [word for word, _ in nearest(name, "grandma")]
        wanted = [cosine for _, cosine in nearest(name, "grandma")]
        assert [float(cosine) for cosine, _ in told] == pytest.approx(wanted, abs=5.1e-4)


def test_what_is_asked_of_sentences(command: Command):
    first, second = "ben had a red ball and", "kate wanted a ball but"
    asked = ("--sentence", first, "--sentence", second, "--instead", "0=kate")
    found = sections(command, "checkpoint:one-head", *asked)
    assert list(found)[:4] == [
        f"'ball' in {first!r} and in {second!r}",
        f"attention from the last token of {first!r}: weight, place from it, token",
        f"attention from the last token of {second!r}: weight, place from it, token",
        f"{first!r} with 'kate' as token 0: the most likely next tokens",
    ]
    told = [re.findall(r"(\d\.\d{3}) +-?\d", " ".join(found[title])) for title in list(found)[1:3]]
    columns = [list(map(float, one[i::2])) for one in told for i in range(2)]  # before, after
    for of_head in columns:
        assert of_head == sorted(of_head, reverse=True)
        assert 0 < sum(of_head) <= 1.0005
    assert "ben by kate" in found[list(found)[3]][1]


def test_what_was_asked_to_no_effect_is_told(command: Command):
    _, out, _ = command("learned", "checkpoint:mlp", "--sentence", "ben had a ball")
    assert "Without attention one sentence says nothing: give two, or --instead too." in out
    _, out, _ = command("learned", "checkpoint:one-head", "--sentence", "ben had a ball")
    assert "says nothing" not in out
    long = " ".join(["ball"] * 80)
    asked = ("--sentence", long, "--instead", "0=kate")
    _, out, _ = command("learned", "checkpoint:one-head", *asked)
    assert "outside its context" in out


def test_without_questions_the_usual_ones(command: Command):
    code, out, err = command("learned", *HEADS)
    assert (code, err) == (0, "")
    for told in ("nearest to 'dog'", "attention from the last token", "in one plane of before and"):
        assert told in out
    assert max(map(len, out.splitlines())) <= 110


def test_pictures_and_reports(command: Command, tmp_path: Path):
    for name, begins in (("p.svg", b"<svg"), ("p.png", b"\x89PNG")):
        code, out, _ = command("learned", "checkpoint:mlp", "--plane", tmp_path / name)
        assert code == 0
        assert f"{tmp_path / name}' has the plane as a picture" in out
        assert (tmp_path / name).read_bytes().startswith(begins)
    code, out, _ = command("learned", *HEADS, "--plane", tmp_path / "each.svg")
    assert code == 0
    for name, title in zip(("one-head", "four-heads"), ("one head", "four heads"), strict=True):
        assert (tmp_path / f"each-{name}.svg").read_bytes().startswith(b"<svg")
        assert f"{title} of attention: words in one plane of before and after (PCA)" in out
    code, out, _ = command("learned", "checkpoint:mlp", "--report", tmp_path / "r.md")
    assert code == 0
    assert "in one plane of before and after (PCA)" in (tmp_path / "r.md").read_text()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "short"
    given = {"model": "attention", "corpus": "storybook:60", "batch": 8}
    own = {"steps": 6, "eval_every": 2, "checkpoint_every": 2, "keep_every": 2, "device": "cpu"}
    train(folder, RunOptions.by_protocol(given, **own).check(), "training", None)
    return folder


def test_the_checkpoints_of_a_run(command: Command, run: Path):
    code, out, err = command("learned", run, "--word", "the", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    plane = told["history"][0]
    assert list(plane["points"]) == ["before", "step 2", "step 4", "step 6"]
    assert plane["words"][0] == "the"
    points = np.array(list(plane["points"].values()))
    moved = np.linalg.norm(points - points[0], axis=-1).mean(axis=1)
    assert list(moved) == sorted(moved)
    assert told["sections"][0][1][0].split() == ["before", *["step", "2", "step", "4", "step", "6"]]


def test_several_runs_keep_apart(command: Command, run: Path, tmp_path: Path):
    """Their steps are the same; two of one name are refused."""
    other = shutil.copytree(run, tmp_path / "other")
    code, _, err = command("learned", run, other)
    assert (code, "two of them are called 'short step 2': ask each alone" in err) == (2, True)
    config = other / "config.json"
    config.write_text(config.read_text().replace('"short"', '"other"'))
    found = sections(command, run, other, "--word", "the")
    told = " ".join(found["nearest to 'the', by cosine"])
    for name in ("short step 2", "short step 6", "other step 2", "other step 6"):
        assert name in told


@pytest.mark.parametrize("tokenizer", ["characters", "bpe:400"])
def test_the_usual_questions_fit_any_vocabulary(command: Command, tmp_path: Path, tokenizer: str):
    """One without words is asked about what it has."""
    given = {"model": "mlp", "corpus": "storybook:60", "tokenizer": tokenizer, "batch": 8}
    own = {"steps": 1, "eval_every": 1, "checkpoint_every": 1, "device": "cpu"}
    train(tmp_path / "run", RunOptions.by_protocol(given, **own).check(), "training", None)
    found = sections(command, tmp_path / "run")
    assert any(title.startswith("nearest to") for title in found)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("nowhere",), 2, "no run is called 'nowhere'.*; checkpoint:NAME is one that ships"),
        (("checkpoint:nowhere",), 2, "there is no checkpoint 'nowhere': use transformer"),
        (("checkpoint:mlp", "checkpoint:characters"), 2, "have different vocabularies: ask each"),
        (("checkpoint:mlp", "--word", "zyzzyva"), 1, "'zyzzyva' is not in the vocabulary"),
        (("checkpoint:mlp", "--word", "the dog"), 1, "'the dog' is 2 tokens: give a word that is"),
        (("checkpoint:mlp", "--word", "\x1b[31m"), 1, "give a word"),
        (("checkpoint:mlp", "--sentence", " "), 2, "--sentence is empty: give it words"),
        (("checkpoint:mlp", "--instead", "x"), 2, "--instead 'x' is no token and its place"),
        (("checkpoint:mlp", "--instead", "1=dog"), 2, "--instead goes with --sentence"),
        (
            ("checkpoint:mlp", "--sentence", "the dog", "--instead", "9=dog"),
            *(2, "'the dog' has no token 9: it has 2"),
        ),
        (("checkpoint:mlp", "--plane", "p.gif"), 2, "--plane 'p.gif' is of no known kind: give"),
        (("checkpoint:mlp", "--report", "r.txt"), 2, "--report 'r.txt' is of no known kind: give"),
        (
            ("checkpoint:mlp", "--plane", "/nowhere/p.svg"),
            *(1, "the picture '/nowhere/p.svg' cannot be written .No such file or directory"),
        ),
    ],
)
def test_what_is_refused(refused: Refused, arguments: tuple[str, ...], code: int, sentence: str):
    assert re.search(sentence, refused("learned", *arguments, code=code))
