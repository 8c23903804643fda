"""`tensorstep states`: names, fields and numbers, without a screen."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.data.split import split_of
from tests.engine.worked import figure
from tests.tui.conftest import Command
from tests.tui.contract import (
    FIELDS,
    GREEDY,
    MODELS,
    PREPARATION,
    PROMPT,
    expected_token,
    expected_training,
    generation_names,
    one_step,
    role_of,
    trained,
    training_names,
)
from tests.tui.desk import DeskClient
from tui import cli, headless

TENSORSTEP = str(Path(sys.executable).parent / "tensorstep")
EACH_MODEL = pytest.mark.parametrize("model", MODELS)
Lines = list[dict[str, Any]]
States = Callable[..., Lines]


@pytest.fixture
def states(command: Command) -> States:
    """The states that `tensorstep states ... --json` prints."""

    def run(*arguments: Any) -> Lines:
        code, out, err = command("states", *arguments, "--json")
        assert (code, err) == (0, "")
        assert out.isascii()
        assert out.endswith("}\n")
        return [json.loads(line, parse_constant=no_constant) for line in out.splitlines()]

    return run


def no_constant(name: str) -> None:
    """NaN and Infinity are no JSON."""
    raise AssertionError(name)


def step_of(lines: Lines, step: int) -> dict[str, Any]:
    """Values by name in one step."""
    return {line["name"]: line["values"] for line in lines if line["step"] == step}


def numbers(values: Any) -> torch.Tensor:
    """A tensor of float64 out of nested lists, "-inf" and the like understood."""
    if isinstance(values, list):
        return torch.stack([numbers(each) for each in values])
    return torch.tensor(float(values), dtype=torch.float64)


def near(values: Any, expected: torch.Tensor) -> bool:
    found = numbers(values)
    return found.shape == expected.shape and torch.allclose(found, expected.double(), atol=1e-6)


# --- names and fields ------------------------------------------------------------------------


@EACH_MODEL
def test_names_of_training_in_order(states: States, model: str):
    lines = states("train", "--model", model, "--steps", 2)
    assert [(line["step"], line["name"]) for line in lines] == [
        *((0, name) for name in PREPARATION),
        *((1, name) for name in training_names(model)),
        *((2, name) for name in training_names(model)),
    ]


@EACH_MODEL
def test_names_of_generation_in_order(states: States, model: str):
    lines = states("generate", "--model", model, "--steps", 2)
    assert [(line["step"], line["name"]) for line in lines] == [
        *((0, name) for name in PROMPT),
        *((1, name) for name in generation_names(model)),
        *((2, name) for name in generation_names(model)),
    ]


@EACH_MODEL
@pytest.mark.parametrize("what", ["train", "generate"])
def test_fields(states: States, model: str, what: str):
    for line in states(what, "--model", model):
        assert list(line) == FIELDS
        assert line["map"] == {"train": "training", "generate": "generation"}[what]
        assert line["role"] == role_of(line["name"])
        assert line["formula"]
        assert len(line["axes"]) == len(line["shape"])
        check_kind(line)
        check_sizes(line, model, rows=2 if what == "train" else 1)


def check_kind(line: dict[str, Any]) -> None:
    values, shape = line["values"], line["shape"]
    if line["kind"] == "text":
        assert line["dtype"] == "str"
        assert isinstance(values, str) if not shape else len(values) == shape[0]
    elif line["kind"] == "number":
        assert shape == []
        assert isinstance(values, int if line["dtype"] == "int64" else float)
    else:
        assert line["kind"] == "tensor"
        assert list(numbers(values).shape) == shape


def check_sizes(line: dict[str, Any], model: str, rows: int) -> None:
    """The letter of an axis says how long it is: the dimensions of the reference."""
    sizes = {"B": rows, "w": 4, "S": 4, "1": 1, "d": 4, "h": 8, "C": 10, "w·d": 16}
    if model == "attention":
        sizes |= {"k": 3, "v": 2}
    else:
        sizes |= {"H": 2, "k": 2, "v": 2, "H·k": 4, "H·v": 4}
    for letter, size in zip(line["axes"], line["shape"], strict=True):
        if letter != "N":
            assert size == sizes[letter], line["name"]


# --- numbers ---------------------------------------------------------------------------------


@EACH_MODEL
def test_numbers_of_training(states: States, model: str):
    """Two steps, forward, backward and update, as plain PyTorch has them."""
    lines = states("train", "--model", model, "--steps", 2)
    for step, expected in enumerate(expected_training(model, steps=2), 1):
        found = step_of(lines, step)
        assert set(expected) == set(found)
        for name, value in expected.items():
            assert near(found[name], value), (step, name)


@EACH_MODEL
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_numbers_of_generation(states: States, model: str, steps: int):
    """The model after so many steps; greedy, each context the last four of the history."""
    network = trained(model, steps)
    lines = states("generate", "--model", model, "--train-steps", steps, "--steps", 3)
    history = [1, 8, 7]
    assert step_of(lines, 0) == {
        "prompt": "Lily found",
        "tokens": ["lily", "found"],
        "history": history,
    }
    for step in range(1, max(line["step"] for line in lines) + 1):
        found = step_of(lines, step)
        context = [0] * (4 - len(history)) + history[-4:]
        expected = expected_token(network, context)
        for name, value in expected.items():
            assert near(found[name], value), (step, name)
        choice = int(expected["probabilities"].argmax())
        assert found["choice"] == choice
        history = [*history, choice]
        assert found["history"] == history


def test_the_worked_sentence(states: States):
    """Step 0, from the reference."""
    found = step_of(states("train"), 0)
    words = ["lily", "found", "a", "red", "ball", "."]
    assert found == {
        "stories": ["Lily found a red ball."],
        "split": ["train"],
        "tokens": words,
        "vocabulary": ["<PAD>", "<BOS>", "<EOS>", "<UNK>", *sorted(words)],
        "ids": [1, 8, 7, 5, 9, 6, 4, 2],
        "windows.contexts": [
            *([0, 0, 0, 1], [0, 0, 1, 8], [0, 1, 8, 7], [1, 8, 7, 5]),
            *([8, 7, 5, 9], [7, 5, 9, 6], [5, 9, 6, 4]),
        ],
        "windows.targets": [8, 7, 5, 9, 6, 4, 2],
    }


def test_published_figures_of_the_mlp(states: States):
    lines = states("train", "--model", "mlp", "--steps", 2)
    first, second = step_of(lines, 1), step_of(lines, 2)
    shares = first["probabilities"][1]
    assert max(range(10), key=shares.__getitem__) == 9
    assert shares[9] == figure(0.1444295048713684)
    assert first["loss"] == figure(2.2983837127685547)
    assert second["loss"] == figure(2.2394907474517822)  # on the same rows, after one step
    gradient = first["gradients.vocab_head.weight"][9][0]
    new = first["update.vocab_head.weight"][9][0]
    assert gradient == pytest.approx(0.010811314918100834, abs=1e-6)
    assert new == pytest.approx(-0.02271692082285881, abs=1e-6)
    assert new + 0.1 * gradient == pytest.approx(-0.021635789424180984, abs=1e-6)  # old
    assert first["gradients.norm"] == pytest.approx(0.7641686797142029, abs=1e-6)


def test_published_figures_of_attention(states: States):
    """The default model."""
    lines = states("train", "--steps", 2)
    weights = step_of(lines, 1)["weights"][0][0]
    expected = [0.0, 0.4611196219921112, 0.25964343547821045, 0.27923691272735596]
    assert weights == pytest.approx(expected, abs=1e-6)
    assert weights[0] == 0
    assert step_of(lines, 1)["scores.masked"][0][0][0] == "-inf"
    assert step_of(lines, 1)["loss"] == pytest.approx(2.112, abs=5e-4)
    assert step_of(lines, 2)["loss"] == figure(2.0291149616241455)


AFTER_ONE_STEP = [
    *(0.0, 0.0, 0.09041141718626022, 0.0, 0.15782228112220764, 0.10370539128780365),
    *(0.16826871037483215, 0.1550559550523758, 0.13043169677257538, 0.19430454075336456),
]
BEFORE_ANY_STEP = [
    *(0.0, 0.0, 0.09116042405366898, 0.0, 0.1605144888162613, 0.0994604304432869),
    *(0.17081841826438904, 0.15768302977085114, 0.1321786642074585, 0.18818457424640656),
]


@pytest.mark.parametrize(
    ("options", "shares"),
    [((), AFTER_ONE_STEP), (("--train-steps", 0), BEFORE_ANY_STEP)],
)
def test_published_probabilities(states: States, options: tuple, shares: list[float]):
    found = step_of(states("generate", "--model", "mlp", "--steps", 1, *options), 1)
    assert found["probabilities"][0] == pytest.approx(shares, abs=1e-6)
    assert [i for i, share in enumerate(found["probabilities"][0]) if share == 0] == [0, 1, 3]
    assert [i for i, each in enumerate(found["logits.blocked"][0]) if each == "-inf"] == [0, 1, 3]


@pytest.mark.parametrize("options", [(), ("--train-steps", 0), ("--greedy",)])
def test_published_greedy_steps(states: States, options: tuple):
    lines = states("generate", "--model", "mlp", "--steps", 4, *options)
    found = [step_of(lines, step) for step in range(1, 5)]
    assert [(each["context"][0], each["choice"]) for each in found] == GREEDY
    assert [each["stop"][:3] for each in found] == ["no", "no", "no", "yes"]
    assert found[3]["history"] == [1, 8, 7, 9, 9, 4, 7]


@pytest.mark.parametrize(("draw", "chosen"), [(0, 2), (0.1, 4), (0.45, 6), (0.8, 8), (1, 9)])
def test_published_choices_by_draw(states: States, draw: float, chosen: int):
    lines = states("generate", "--model", "mlp", "--draw", draw, "--steps", 1)
    assert step_of(lines, 1)["choice"] == chosen


@EACH_MODEL
def test_full_precision(states: States, model: str):
    """Every number is the very float32 (cdf: float64) that was computed, not a rounded one."""
    expected = expected_training(model)[0]
    found = step_of(states("train", "--model", model), 1)
    exact = [name for name in expected if not name.startswith("loss")]
    same = 0
    for name in exact:
        values = numbers(found[name])
        assert torch.equal(values.float().double(), values), name
        same += torch.equal(values, expected[name].double())
    assert same > len(exact) / 2  # most agree to the last bit with another order of computing


# --- options ---------------------------------------------------------------------------------


def test_rows(states: States):
    found = step_of(states("train", "--rows", "0, 6,0"), 1)
    assert found["batch.X"] == [[0, 0, 0, 1], [5, 9, 6, 4], [0, 0, 0, 1]]
    assert found["batch.y"] == [8, 2, 8]
    expected = expected_training("attention", x=found["batch.X"], y=found["batch.y"])[0]
    assert near(found["loss"], expected["loss"])


def test_rows_are_those_that_are_trained_on_before_generating(states: States):
    network = trained("mlp", 0)
    rows = torch.tensor([[0, 0, 0, 1], [5, 9, 6, 4]]), torch.tensor([8, 2])
    one_step(network, *rows, 0.1)
    found = step_of(states("generate", "--model", "mlp", "--rows", "0,6", "--steps", 1), 1)
    assert near(found["logits"], expected_token(network, [0, 1, 8, 7])["logits"])


def test_batch(states: States):
    """Drawn with replacement from seed + 10000, step after step."""
    lines = states("train", "--batch", 3, "--steps", 2)
    generator = torch.Generator().manual_seed(10_011)
    targets = [8, 7, 5, 9, 6, 4, 2]
    for step in (1, 2):
        rows = torch.randint(7, (3,), generator=generator).tolist()
        assert step_of(lines, step)["batch.y"] == [targets[row] for row in rows]


@pytest.mark.parametrize(
    ("model", "options", "shapes"),
    [
        ("mlp", ("--width", 6), {"embedding": [2, 4, 6], "flatten": [2, 24]}),
        ("mlp", ("--hidden", 5), {"hidden": [2, 5], "update.vocab_head.weight": [10, 5]}),
        ("attention", ("--width", 6), {"q": [2, 1, 6], "V": [2, 4, 6], "residual": [2, 1, 6]}),
        ("attention", ("--hidden", 3), {"hidden.pre": [2, 3], "message": [2, 1, 2]}),
        ("multihead", ("--heads", 4), {"weights": [2, 4, 1, 4], "message": [2, 4, 1, 1]}),
        ("multihead", ("--width", 8), {"weights": [2, 2, 1, 4], "message": [2, 2, 1, 4]}),
        ("attention", ("--context", 6), {"batch.X": [2, 6], "weights": [2, 1, 6]}),
        ("attention", ("--context", 1), {"batch.X": [2, 1], "weights": [2, 1, 1]}),
    ],
)
def test_sizes(states: States, model: str, options: tuple, shapes: dict[str, list[int]]):
    found = {line["name"]: line["shape"] for line in states("train", "--model", model, *options)}
    assert {name: found[name] for name in shapes} == shapes


@pytest.mark.parametrize(
    ("width", "context"), [(2, [9, 6]), (4, [7, 5, 9, 6]), (6, [1, 8, 7, 5, 9, 6])]
)
def test_contexts_by_width(states: States, width: int, context: list[int]):
    """Before the sixth target, the full stop; from the reference."""
    found = step_of(states("train", "--context", width), 0)
    assert found["windows.contexts"][5] == context
    assert found["windows.targets"][5] == 4


def test_steps_of_training(states: States):
    lines = states("train", "--model", "mlp", "--steps", 3)
    assert sorted({line["step"] for line in lines}) == [0, 1, 2, 3]
    assert states("train", "--model", "mlp") == states("train", "--model", "mlp", "--steps", 1)


def test_a_generation_ends_by_its_budget_or_earlier(states: States):
    """16 tokens where nothing is said; a draw of 0 takes <EOS>, and that is the end."""
    lines = states("generate", "--model", "mlp")
    last = max(line["step"] for line in lines)
    assert last == 16
    assert step_of(lines, 16)["stop"] == "yes: the budget of 16 new tokens is used up"
    lines = states("generate", "--model", "mlp", "--draw", 0, "--steps", 9)
    assert max(line["step"] for line in lines) == 1
    assert step_of(lines, 1)["choice"] == 2
    assert step_of(lines, 1)["stop"] == "yes: <EOS> was chosen"


def test_prompt(states: States):
    """Unknown words are <UNK>; the whole prompt is kept, the window crops it."""
    lines = states("generate", "--prompt", "A blue BALL, lily found", "--steps", 1)
    first, then = step_of(lines, 0), step_of(lines, 1)
    assert first["prompt"] == "A blue BALL, lily found"
    assert first["tokens"] == ["a", "blue", "ball", ",", "lily", "found"]
    assert first["history"] == [1, 5, 3, 6, 3, 8, 7]
    assert then["context"] == [[6, 3, 8, 7]]


def test_an_empty_prompt_begins_a_story(states: States):
    lines = states("generate", "--prompt", "", "--steps", 1)
    assert step_of(lines, 0) == {"prompt": "", "tokens": [], "history": [1]}
    assert step_of(lines, 1)["context"] == [[0, 0, 0, 1]]


def test_seed_of_training(states: States):
    """Of parameters and batches."""
    found = step_of(states("train", "--model", "mlp", "--seed", 5, "--batch", 2), 1)
    torch.manual_seed(5)
    table = torch.nn.Embedding(10, 4, padding_idx=0).weight
    ids = torch.tensor(found["batch.X"])
    assert near(found["embedding"], table[ids].detach())
    rows = torch.randint(7, (2,), generator=torch.Generator().manual_seed(10_005)).tolist()
    assert found["batch.y"] == [[8, 7, 5, 9, 6, 4, 2][row] for row in rows]


def test_seed_of_generation(states: States):
    """Of the draws alone: the parameters stay those of seed 11."""
    lines = states("generate", "--model", "mlp", "--seed", 8, "--steps", 6)
    generator = torch.Generator().manual_seed(8)
    history, network = [1, 8, 7], trained("mlp", 1)
    chosen = []
    for step in range(1, max(line["step"] for line in lines) + 1):
        draw = float(torch.rand((), generator=generator, dtype=torch.float64))
        context = [0] * (4 - len(history)) + history[-4:]
        cdf = expected_token(network, context)["cdf"][0].tolist()
        allowed = [i for i in range(10) if i not in (0, 1, 3)]
        history.append(next((i for i in allowed if cdf[i] >= draw), allowed[-1]))
        chosen.append(history[-1])
        assert step_of(lines, step)["choice"] == history[-1]
        line = next(each for each in lines if (each["step"], each["name"]) == (step, "choice"))
        assert f"{draw:.6g}" in line["formula"]  # the draw is shown
    assert len(set(chosen)) > 2  # it was not the greedy one


@pytest.mark.parametrize("most", [0, 7, 8, 40])
def test_max_values(states: States, most: int):
    """Values of larger states are left out, and nothing else; 8 cells are not more than 8."""
    for line in states("train", "--max-values", most):
        cells = math.prod(line["shape"])
        assert list(line) == (FIELDS if cells <= most else FIELDS[:-1])


def test_learning_rate_and_optimizer(states: States):
    """torch's own AdamW, with its defaults, two steps."""
    options = ("--model", "mlp", "--optimizer", "adamw", "--lr", 0.02, "--steps", 2)
    lines = states("train", *options)
    network = trained("mlp", 0)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.02)
    for step in (1, 2):
        optimizer.zero_grad()
        x, y = torch.tensor([[0, 1, 8, 7], [1, 8, 7, 5]]), torch.tensor([5, 9])
        torch.nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
        found = step_of(lines, step)
        for name, parameter in network.named_parameters():
            assert near(found[f"update.{name}"], parameter.detach()), (step, name)
    large = step_of(states("train", "--model", "mlp", "--lr", 0.5), 1)
    expected = expected_training("mlp", lr=0.5)[0]
    assert near(large["update.vocab_head.bias"], expected["update.vocab_head.bias"])


# --- one's own text --------------------------------------------------------------------------


def test_sentence(states: States):
    found = step_of(states("train", "--sentence", "A cat; a HAT!", "--context", 2), 0)
    assert found["stories"] == ["A cat; a HAT!"]
    assert found["tokens"] == ["a", "cat", ";", "a", "hat", "!"]
    assert found["vocabulary"] == ["<PAD>", "<BOS>", "<EOS>", "<UNK>", "!", ";", "a", "cat", "hat"]
    assert found["ids"] == [1, 6, 7, 5, 6, 8, 4, 2]
    assert found["windows.contexts"][:3] == [[0, 1], [1, 6], [6, 7]]
    found = step_of(states("generate", "--sentence", "A cat; a HAT!", "--steps", 1), 0)
    assert found["tokens"] == ["a", "cat"]


def test_text_is_one_document(states: States, tmp_path: Path):
    file = tmp_path / "story.txt"
    file.write_bytes(b"\xef\xbb\xbfLily found a ball.\r\nLily found a red ball.\r\n")
    lines = states("train", "--text", file)
    found = step_of(lines, 0)
    assert found["stories"] == ["Lily found a ball.\nLily found a red ball.\n"]
    assert [found["ids"].count(each) for each in (1, 2, 4)] == [1, 1, 2]  # from the reference
    assert found["split"] == ["train"]
    split = next(line for line in lines if line["name"] == "split")
    assert split["formula"] == "1 document: fewer than 10, so all train"


def test_lines_are_documents(states: States, tmp_path: Path):
    """Windows never cross a document; fewer than 10 all train, and the split says so."""
    file = tmp_path / "stories.txt"
    file.write_text("one two\n\n  \nthree\n")
    lines = states("train", "--text", file, "--lines", "--context", 3)
    found = step_of(lines, 0)
    assert found["stories"] == ["one two", "three"]
    assert found["split"] == ["train", "train"]
    one, three, two = 4, 5, 6
    assert found["ids"] == [1, one, two, 2, 1, three, 2]
    assert found["windows.contexts"] == [
        *([0, 0, 1], [0, 1, one], [1, one, two]),
        *([0, 0, 1], [0, 1, three]),
    ]
    assert found["windows.targets"] == [one, two, 2, three, 2]
    split = next(line for line in lines if line["name"] == "split")
    assert split["formula"] == "2 documents: fewer than 10, so all train"


def test_held_out_documents(states: States, tmp_path: Path):
    """From 10 documents on some are held out: their mean loss is a state that updates nothing."""
    stories = [f"story {number} of a cat" for number in range(30)]
    sides = [split_of(story) for story in stories]
    assert "validation" in sides
    file = tmp_path / "stories.txt"
    file.write_text("\n".join(stories))
    lines = states("train", "--text", file, "--lines", "--model", "mlp", "--steps", 2)
    assert step_of(lines, 0)["split"] == sides
    names = [line["name"] for line in lines if line["step"] == 1]
    assert names == training_names("mlp", validated=True)
    words = step_of(lines, 0)["vocabulary"]
    contexts, targets = [], []
    for story, side in zip(stories, sides, strict=True):
        if side == "validation":
            ids = [1, *(words.index(w) if w in words else 3 for w in story.split()), 2]
            contexts += [([0] * 4 + ids[:at])[-4:] for at in range(1, len(ids))]
            targets += ids[1:]
    for step in (1, 2):
        found = step_of(lines, step)
        network = trained("mlp", 0)
        network.token_embedding = torch.nn.Embedding(len(words), 4, padding_idx=0)
        network.vocab_head = torch.nn.Linear(8, len(words))
        for name, parameter in network.named_parameters():
            parameter.data = numbers(found[f"update.{name}"]).float()
        loss = torch.nn.functional.cross_entropy(
            network(torch.tensor(contexts)), torch.tensor(targets)
        )
        assert found["validation"] == pytest.approx(loss.item(), abs=1e-5)


# --- without --json --------------------------------------------------------------------------


def test_a_readable_listing(command: Command):
    code, out, err = command("states", "train", "--model", "mlp")
    assert (code, err) == (0, "")
    headings = [line for line in out.splitlines() if line.startswith("step ")]
    names = [line.split("  ")[2] for line in headings]
    assert names == [*PREPARATION, *training_names("mlp")]
    assert "[B 2, w 4]" in out
    assert "0  1  8  7" in out
    assert "2.2984" in out
    assert "0.1444" in out


HOSTILE = "cat [red]x[/red] [/] \x1b[31m \x07 \x9b \u202e \u200b \x7f end"


def test_hostile_text_is_shown(command: Command, states: States):
    """Escaped in the listing; in JSON as JSON escapes it, and the same text when read."""
    code, out, err = command("states", "train", "--sentence", HOSTILE)
    assert (code, err) == (0, "")
    assert all(line.isprintable() for line in out.splitlines())
    assert "cat [red]x[/red] [/] \\e[31m \\x07 \\x9b \\u{202e} \\u{200b} \\x7f end" in out
    assert step_of(states("train", "--sentence", HOSTILE), 0)["stories"] == [HOSTILE]


def test_hostile_text_in_json_is_ascii(command: Command):
    out = command("states", "train", "--sentence", HOSTILE, "--json")[1]
    assert out.isascii()
    assert all(line.isprintable() for line in out.splitlines())


# --- the real thing --------------------------------------------------------------------------


def test_the_installed_command(states: States, tmp_path: Path):
    """With a worker of its own, from a folder that has an `engine` and a `torch` of its own."""
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("raise SystemExit('not ours')")
    (tmp_path / "torch.py").write_text("raise SystemExit('not ours')")
    ran = subprocess.run(
        [TENSORSTEP, "states", "train", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [json.loads(line) for line in ran.stdout.splitlines()] == states("train")


def test_a_reader_that_has_seen_enough(tmp_path: Path):
    """`| head`: quiet, and no failure."""
    ran = subprocess.run(
        f"{TENSORSTEP} states train --steps 500 --json | head -1; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        timeout=120,
    )
    first, code = ran.stdout.splitlines()
    assert json.loads(first)["name"] == "stories"
    assert (code, ran.stderr) == ("0", "")


def test_a_listing_where_there_is_only_ascii(monkeypatch: pytest.MonkeyPatch):
    """Formulas are spelled out, other characters escaped: nothing ends with an error."""
    monkeypatch.setattr(headless, "Client", DeskClient)
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    with pytest.raises(SystemExit) as ended:
        cli.main(["states", "train", "--sentence", "é → x"])
    assert ended.value.code == 0
    out = raw.getvalue().decode("ascii")
    assert "\\xe9 \\u{2192} x" in out
    assert "embedding * W_Q.weight^T" in out
    assert "update.vocab_head.bias" in out
