"""`tensorstep generate --checkpoint`, and what is opened walked without a screen: small checkpoints
written here, and the trained stories model."""

from __future__ import annotations

import io
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from torch import Tensor

from engine.data.storybook import write_stories
from engine.models.pretrained import load_pretrained
from tests.engine.checkpoint_files import GPT2, LLAMA, STORIES, tensors_of, write, write_tokenizer
from tests.tui.conftest import Command
from tests.tui.desk import DeskClient
from tests.tui.test_mistakes import Refused, refused
from tui import cli, headless

__all__ = ["refused"]  # the fixture

SIZE = 300  # every byte, <s> and </s>, <unk>, and merges
BOS, EOS, UNK = 0, 1, 2
CONFIGS = {
    "gpt2": {**GPT2, "vocab_size": SIZE, "bos_token_id": BOS, "eos_token_id": EOS},
    "llama": {**LLAMA, "vocab_size": SIZE, "bos_token_id": BOS, "eos_token_id": EOS},
}


@cache
def encoder() -> tokenizers.Tokenizer:
    """Byte-level BPE by the library alone."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=["<s>", "</s>", "<unk>"],
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator(write_stories(50, 1), trainer)
    assert made.get_vocab_size() == SIZE
    return made


def checkpoint(folder: Path, kind: str = "llama", **more: Any) -> Path:
    """A small checkpoint of random numbers, with that tokenizer."""
    config = {**CONFIGS[kind], **more}
    tensors = tensors_of(config)
    if "lm_head.weight" in tensors:
        tensors["lm_head.weight"] *= 4  # so that not every token is as likely
    write(folder, config, tensors)
    encoder().save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(params=["llama", "gpt2"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return checkpoint(tmp_path, request.param)


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return checkpoint(tmp_path)


def generated(command: Command, where: Path, *arguments: Any) -> dict[str, Any]:
    """The one JSON object that it prints."""
    code, out, err = command("generate", "--checkpoint", where, *arguments, "--json")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    assert out.isascii()
    found: dict[str, Any] = json.loads(out)
    return found


def started(folder: Path, prompt: str) -> list[int]:
    """The prompt's IDs, as transformers' tokenizers have them: Llama's put BOS before all texts."""
    is_llama = json.loads((folder / "config.json").read_text())["model_type"] == "llama"
    return [*([BOS] if is_llama else []), *encoder().encode(prompt).ids]


def greedy(where: Path, ids: list[int], count: int) -> list[int]:
    """The loop everybody writes, over the checkpoint's own logits."""
    model, ids = load_pretrained(str(where)).model, list(ids)
    for _ in range(count):
        with torch.no_grad():
            logits: Tensor = model(torch.tensor([ids[-model.context_len :]]))[0, -1]
        ids.append(int(logits.argmax()))
        if ids[-1] == EOS:
            break
    return ids


# --- what is printed -------------------------------------------------------------------------


def test_the_fields(command: Command, folder: Path):
    """All IDs, the prompt's and BOS included; the text, the prompt with it; what it cost."""
    prompt = "Lily saw a cat"
    found = generated(command, folder, "--prompt", prompt, "--max-new-tokens", 5)
    start = started(folder, prompt)
    assert found["ids"] == greedy(folder, start, 5)
    assert found["text"] == encoder().decode(found["ids"], skip_special_tokens=True)
    assert found["text"].startswith(prompt)
    assert found["prompt"] == prompt
    assert found["new_tokens"] == len(found["ids"]) - len(start) == 5
    assert found["ended"] == "yes: the budget of 5 new tokens is used up"
    assert found["with_cache"] < found["without_cache"]
    assert found["cache_bytes"] > 0


def test_with_and_without_a_cache(command: Command, folder: Path):
    arguments = ("--prompt", "The cat", "--max-new-tokens", 9)
    cached = generated(command, folder, *arguments)
    assert generated(command, folder, *arguments, "--no-cache") == cached


@pytest.mark.parametrize("more", [(), ("--no-cache",)])
@pytest.mark.parametrize("prompt", [(), ("--prompt", "")])
def test_an_empty_prompt_starts_from_bos_alone(
    command: Command, folder: Path, prompt: tuple[str, ...], more: tuple[str, ...]
):
    found = generated(command, folder, *prompt, "--max-new-tokens", 6, *more)
    assert found["ids"] == greedy(folder, [BOS], 6)
    assert found["prompt"] == ""
    assert found["new_tokens"] == len(found["ids"]) - 1


def test_the_text_comes_as_it_is_made(
    monkeypatch: pytest.MonkeyPatch, command: Command, llama: Path
):
    """A piece a token, flushed; all pieces together are the text, and a newline."""
    arguments = ["--prompt", "Lily", "--max-new-tokens", "12"]
    wanted = generated(command, llama, *arguments)

    class Recorder(io.StringIO):
        def flush(self) -> None:
            pieces.append(self.getvalue())

    pieces: list[str] = []
    recorder = Recorder()
    monkeypatch.setattr(headless, "Client", DeskClient)
    monkeypatch.setattr(sys, "stdout", recorder)
    with pytest.raises(SystemExit) as ended:
        cli.main(["generate", "--checkpoint", str(llama), *arguments])
    assert ended.value.code == 0
    whole = recorder.getvalue()
    assert whole == headless.shown_text(wanted["text"], False) + "\n"
    assert all(whole.startswith(piece) for piece in pieces)
    assert len(set(pieces)) >= 6


def test_a_mark_that_comes_later_belongs_to_its_letter():
    """Printed in any pieces, a text is what it is as a whole."""
    text = "e\u0301\u0332 \u0301 a\n\u0301\u0927\u0947\x1b\u0301e\u0301"
    whole = headless.shown_text(text, False)
    assert "e\u0301\u0332 \u0301" in whole
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            pieces = ((0, first), (first, second), (second, len(text)))
            printed = "".join(headless.shown_after(text[:a], text[:b], False) for a, b in pieces)
            assert printed == whole, (first, second)


@pytest.mark.parametrize("seed", range(4))
def test_a_text_is_data(command: Command, llama: Path, seed: int):
    """Random bytes: what a terminal would obey is shown; half a character is never printed."""
    arguments = ("--prompt", "\x1b[31m caf\xe9 \u20ac\n", "--temperature", 3, "--seed", seed)
    arguments = (*arguments, "--max-new-tokens", 20)
    code, out, err = command("generate", "--checkpoint", llama, *arguments)
    assert (code, err) == (0, "")
    assert not [c for c in out if c != "\n" and not c.isprintable()]
    assert "\\e[31m caf\xe9 \u20ac\n" in out
    wanted = generated(command, llama, *arguments)["text"]
    assert out == headless.shown_text(wanted, False) + "\n"


# --- how tokens are drawn --------------------------------------------------------------------


def test_seeds_are_reproducible(command: Command, llama: Path):
    def ids(seed: int, *more: str) -> list[int]:
        drawn = ("--temperature", 1.5, "--seed", seed, "--max-new-tokens", 10, *more)
        return generated(command, llama, "--prompt", "The", *drawn)["ids"]

    assert ids(5) == ids(5) == ids(5, "--no-cache")
    assert len({tuple(ids(seed)) for seed in range(6)}) > 1


def test_a_temperature_alone_draws_with_seed_0(command: Command, llama: Path):
    arguments = ("--prompt", "The", "--temperature", 1.5, "--max-new-tokens", 10)
    found = generated(command, llama, *arguments)
    assert found == generated(command, llama, *arguments, "--seed", 0)
    assert found["ids"] != generated(command, llama, *arguments[:2], *arguments[4:])["ids"]


def test_top_k_of_1_is_greedy(command: Command, llama: Path):
    arguments = ("--prompt", "The", "--max-new-tokens", 10)
    wanted = generated(command, llama, *arguments)
    for more in (("--top-k", 1), ("--top-p", 1e-9), ("--temperature", 1e-4)):
        assert generated(command, llama, *arguments, *more, "--seed", 3) == wanted


@pytest.mark.parametrize(("option", "setting"), [("--top-k", 3), ("--top-p", 0.3)])
def test_only_what_is_kept_is_drawn(command: Command, llama: Path, option: str, setting: float):
    """Of the first new token, over many seeds."""
    model = load_pretrained(str(llama)).model
    start = [BOS, *encoder().encode("The").ids]
    with torch.no_grad():
        logits = model(torch.tensor([start]))[0, -1]
    logits[[BOS, UNK]] = -torch.inf
    shares = logits.double().softmax(-1)
    order = shares.argsort(descending=True).tolist()
    sums = shares[order].cumsum(0).tolist()
    count = int(setting) if option == "--top-k" else sum(x < setting for x in sums) + 1
    drawn = set()
    for seed in range(25):
        more = ("--max-new-tokens", 1, "--seed", seed, option, setting)
        drawn.add(generated(command, llama, "--prompt", "The", *more)["ids"][-1])
    assert drawn <= set(order[:count])
    assert len(drawn) > 1


# --- where it ends ---------------------------------------------------------------------------


def test_it_ends_where_the_context_is_full(command: Command, tmp_path: Path):
    """With a cache; without one the context moves on."""
    where = checkpoint(tmp_path, "gpt2")
    found = generated(command, where, "--max-new-tokens", 30)
    assert found["ended"] == "yes: the context of 16 tokens is full"
    assert len(found["ids"]) == 17
    anew = generated(command, where, "--max-new-tokens", 30, "--no-cache")
    assert anew["ids"] == greedy(where, [BOS], 30)
    assert anew["ids"][:17] == found["ids"]
    assert len(anew["ids"]) > 17


def test_every_end_that_the_config_names_ends_it(command: Command, llama: Path):
    """Also one that the tokenizer does not know as an end."""
    free = generated(command, llama, "--prompt", "The", "--max-new-tokens", 8)
    third = free["ids"][len(free["ids"]) - free["new_tokens"] + 2]
    first = free["ids"].index(third, len(free["ids"]) - free["new_tokens"])
    checkpoint(llama, eos_token_id=[EOS, third])
    found = generated(command, llama, "--prompt", "The", "--max-new-tokens", 8)
    assert found["ids"] == free["ids"][: first + 1]
    assert found["ended"] == "yes: <EOS> was chosen"


def test_a_beginning_that_only_the_config_names(command: Command, tmp_path: Path):
    """A tokenizer without special tokens: texts begin with the config's."""
    config = {**LLAMA, "bos_token_id": 4, "eos_token_id": None}
    write(tmp_path, config)
    write_tokenizer(tmp_path, LLAMA["vocab_size"])
    found = generated(command, tmp_path, "--max-new-tokens", 20)
    assert found["ids"][0] == 4
    assert len(found["ids"]) == 21
    prompted = generated(command, tmp_path, "--prompt", "w7 w3", "--max-new-tokens", 1)
    assert prompted["ids"][:3] == [4, 7, 3]


def test_no_beginning_at_all(refused: Refused, tmp_path: Path):
    write(tmp_path, {**LLAMA, "bos_token_id": None})
    write_tokenizer(tmp_path, LLAMA["vocab_size"])
    told = refused("generate", "--checkpoint", tmp_path)
    assert told.endswith("has no <BOS> to start from: give a prompt")


# --- wrong options ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--temperature", 0), "a temperature of 0 divides nothing: give a number above 0"),
        (("--temperature", "nan"), "a temperature of nan divides nothing: give a number above 0"),
        (("--top-k", 0), "--top-k 0 keeps no token: give 1 or more"),
        (("--top-p", 1.5), "--top-p 1.5 is no share: give a number above 0, up to 1"),
        (("--max-new-tokens", 0), "-tokens 0 is too small: give 1 or more"),
        (("--max-new-tokens", -3), "-tokens -3 is too small: give 1 or more"),
        (("--seed", -1), "-1 is no seed: give a whole number from 0 to 2^63 - 1"),
        (("--dtype", "int8"), "there is no type 'int8': give float32, bf16, bfloat16, float16"),
        (("--prompt", "The " * 40), "tokens, the model's context 32: shorten it"),
        (("--top-k", "many"), "argument --top-k: invalid int value: 'many'"),
    ],
)
def test_wrong_options(refused: Refused, llama: Path, arguments: tuple[Any, ...], sentence: str):
    assert sentence in refused("generate", "--checkpoint", llama, *arguments)


def test_no_checkpoint_is_named(refused: Refused):
    assert "--checkpoint" in refused("generate", "--prompt", "The")


def test_a_folder_that_is_not_there(refused: Refused, tmp_path: Path):
    told = refused("generate", "--checkpoint", tmp_path / "nowhere")
    assert "there is no folder" in told


def test_a_folder_without_a_tokenizer(refused: Refused, llama: Path):
    (llama / "tokenizer.json").unlink()
    told = refused("generate", "--checkpoint", llama, "--prompt", "The")
    assert "has no tokenizer that is read here: put a tokenizer.json beside its weights" in told


def test_a_folder_with_nothing(refused: Refused, tmp_path: Path):
    told = refused("generate", "--checkpoint", tmp_path, code=1)
    assert "config.json" in told


def test_a_truncated_file(refused: Refused, llama: Path):
    file = llama / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    told = refused("generate", "--checkpoint", llama, code=1)
    assert "is damaged or incomplete" in told


def test_opening_needs_a_terminal(refused: Refused, llama: Path):
    for where in (llama, "example:money-bank-4"):
        assert "there is no terminal to draw on" in refused("open", where)


def test_an_example_that_there_is_not(refused: Refused):
    told = refused("open", "example:money")
    assert told == (
        "there is no example 'money': use money-bank-2, money-bank-4, money-bank-causal"
    )


# --- walked without a screen -----------------------------------------------------------------


async def asked(opened: str, *requests: tuple[str, dict[str, Any]], **options: Any) -> list[Any]:
    """The answers of a worker over what is opened."""
    client = DeskClient()
    values = {"opened": opened, "model": "checkpoint", "context": 8, "train_steps": 0, **options}
    await client.ask("open", options=values)
    return [await client.ask(method, **params) for method, params in requests]


@pytest.mark.parametrize("model", ["checkpoint", "checkpoint:cached"])
async def test_a_folder_is_walked(folder: Path, model: str):
    """The generation map: every state has a stage, a formula and values; the text is the one that
    `generate` prints."""
    where = {"map": "generation", "model": model}
    client = DeskClient()
    values = {"opened": str(folder), "model": "checkpoint", "prompt": "The cat", "tokens": 2}
    await client.ask("open", options={**values, "context": 8, "train_steps": 0})
    seen = []
    while True:
        found = await client.ask("dump", **where, max_values=10_000)
        assert found["formula"]
        assert found["stage"]
        seen.append((found["step"], found["name"]))
        if not (await client.ask("move", **where, how="forward"))["moved"]:
            break
    assert (2, "blocks.1.residual2") in seen
    assert ((1, "blocks.0.attention.cache.k") in seen) == model.endswith("cached")
    assert seen[-1] == (2, "history")
    assert found["values"] == greedy(folder, started(folder, "The cat"), 2)


async def test_a_folder_is_trained_on(llama: Path):
    """The training map, on a text of one's own: the loss is that of the loop everybody writes."""
    text = "Lily saw a cat. The cat saw Lily."
    where = {"map": "training", "model": "checkpoint"}
    seek = ("move", {**where, "how": "seek", "step": 1, "name": "loss"})
    dump = ("dump", {**where, "max_values": 10})
    x = ("move", {**where, "how": "seek", "step": 1, "name": "batch.X"})
    requests = (seek, dump, x, dump)
    _, loss, _, batch = await asked(str(llama), *requests, sentence=text, rows=(0, 1))
    ids = [BOS, *encoder().encode(text).ids, EOS]
    X, y = (torch.tensor([ids[i + s : i + s + 8] for i in (0, 1)]) for s in (0, 1))
    assert batch["shape"] == [2, 8]
    with torch.no_grad():
        logits = load_pretrained(str(llama)).model(X)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
    assert loss["values"] == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize("name", ["money-bank-2", "money-bank-4", "money-bank-causal"])
async def test_an_example_is_walked(name: str):
    where = {"map": "generation", "model": name}
    seek = ("move", {**where, "how": "seek", "step": 1, "name": "blocks.0.residual1"})
    dump = ("dump", {**where, "max_values": 100})
    _, found = await asked(f"example:{name}", seek, dump, model=name)
    row = [round(x, 6) for x in found["values"][0][2]]
    wide = [-0.936495, 3.733627, 0.266373, 3.968248]
    assert row == ([8.798959, 7.798959] if name == "money-bank-2" else wide)


def states(command: Command, *arguments: Any) -> dict[tuple[int, str], dict[str, Any]]:
    """What `states` prints of something that is opened, by step and name."""
    code, out, err = command("states", *arguments, "--json")
    assert (code, err) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    return {(state["step"], state["name"]): state for state in found}


def test_states_of_a_folder(command: Command, folder: Path):
    """The same generation, state by state; its text is the one that `generate` prints."""
    opened = ("--open", folder, "--prompt", "The cat")
    found = states(command, "generate", *opened, "--steps", 2)
    ids = generated(command, folder, "--prompt", "The cat", "--max-new-tokens", 2)["ids"]
    assert found[2, "history"]["values"] == ids
    logits = found[1, "logits"]["values"][0][-1]
    with torch.no_grad():
        expected = load_pretrained(str(folder)).model(torch.tensor([ids[:-2]]))[0, -1]
    assert torch.allclose(torch.tensor(logits), expected, atol=1e-5)


def test_states_of_an_example(command: Command):
    found = states(command, "generate", "--open", "example:money-bank-4")
    assert found[0, "prompt"]["values"] == "money at bank"
    row = found[1, "blocks.0.residual2"]["values"][0][2]
    assert [round(x, 6) for x in row] == [-1.19111, 4.706179, -0.02681, 5.059106]
    masked = found[1, "blocks.0.attention.scores.masked"]["values"][0][0]
    assert masked[1][:2] == pytest.approx([0, 2])
    assert masked[1][2] == "-inf"


def test_the_explanation_of_a_rounded_figure(command: Command):
    """What the notes show, and why it is not what comes out."""
    at = ("blocks.0.residual2", "--at", "0,2,3")
    code, out, _ = command("explain", *at, "--open", "example:money-bank-4")
    assert code == 0
    assert "the notes show 5.058: they carry rounded figures on" in out
    assert "5.0591" in out


def test_an_example_cannot_be_trained(refused: Refused):
    told = refused("states", "train", "--open", "example:money-bank-4")
    assert told == "an example is a forward pass: it has no training map"


# --- the trained stories model ---------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--no-cache",)])
def test_the_stories_model(command: Command, more: tuple[str, ...]):
    """Its 200 greedy tokens and their text, exactly."""
    if not STORIES.exists():
        pytest.skip("../shared/models/stories260K is not here")
    wanted = json.loads((STORIES / "greedy200_token_ids.json").read_text())
    found = generated(command, STORIES, "--max-new-tokens", len(wanted) - 1, *more)
    assert found["ids"] == wanted
    text = (STORIES / "expected_greedy_200.txt").read_text()
    assert found["text"].strip() == text.strip()


def test_the_stories_model_as_it_is_printed(command: Command):
    if not STORIES.exists():
        pytest.skip("../shared/models/stories260K is not here")
    code, out, err = command("generate", "--checkpoint", STORIES, "--max-new-tokens", 200)
    assert (code, err) == (0, "")
    text = (STORIES / "expected_greedy_200.txt").read_text()
    assert out.strip() == text.strip()


# --- published habits ------------------------------------------------------------------------


def test_a_model_that_knows_more_ids_than_its_tokenizer(command: Command, tmp_path: Path):
    """Published vocabularies are often padded: such IDs are no text, and are called #320."""
    folder = checkpoint(tmp_path, vocab_size=SIZE + 30)
    loaded = load_pretrained(str(folder))
    assert loaded.tokenizer is not None
    assert len(loaded.tokenizer) == SIZE + 30
    last = encoder().decode([SIZE - 1])
    assert loaded.tokenizer.itos[SIZE - 1 :][:3] == [last, "#300", "#301"]
    assert loaded.tokenizer.decode([54, 320, 54]) == encoder().decode([54, 54])
    head = tensors_of({**CONFIGS["llama"], "vocab_size": SIZE + 30})
    head["lm_head.weight"][320] = 50 * head["lm_head.weight"].abs().max()
    write(folder, {**CONFIGS["llama"], "vocab_size": SIZE + 30}, head)
    found = generated(command, folder, "--prompt", "The cat", "--max-new-tokens", 12)
    assert found["ids"] == greedy(folder, started(folder, "The cat"), 12)
    code, out, err = command(
        "states", "generate", "--open", folder, "--prompt", "The cat", "--steps", 2, "--json"
    )
    assert (code, err) == (0, "")
    assert out


def test_special_tokens_in_a_prompt_are_these_tokens(command: Command, folder: Path):
    """As transformers reads a prompt; elsewhere text that spells them is plain text."""
    prompt = "The</s>cat"
    found = generated(command, folder, "--prompt", prompt, "--max-new-tokens", 1)
    wanted = encoder().encode(prompt, add_special_tokens=False).ids
    assert EOS in wanted
    assert found["ids"][-1 - len(wanted) : -1] == wanted


def test_a_prompt_with_bos_twice_is_flagged(command: Command, llama: Path):
    code, out, err = command(
        "generate", "--checkpoint", llama, "--prompt", "<s>The", "--max-new-tokens", 1, "--json"
    )
    assert code == 0
    assert json.loads(out)["ids"][:2] == [BOS, BOS]
    assert "the prompt begins with <s>, which is put before it anyway" in err


def test_a_prompt_that_is_longer_than_the_context_is_flagged(command: Command, llama: Path):
    arguments = ("--prompt", "The cat " * 30, "--max-new-tokens", 1, "--no-cache")
    code, _, err = command("generate", "--checkpoint", llama, *arguments)
    assert code == 0
    assert "tokens the model sees the last 32" in err


def test_what_does_not_go_with_a_checkpoint(refused: Refused, llama: Path):
    assert "is not UTF-8" in refused("generate", "--checkpoint", llama, "--prompt", "bad \udcff")
    for option, value in (("--model", "mlp"), ("--width", 8), ("--tokenizer", "words")):
        told = refused("states", "generate", "--open", llama, option, value)
        assert told == f"{option} goes with a model that is trained here: leave it out"
    assert "does not write" in refused("generate", "--checkpoint", "example:money-bank-4")


def test_a_mismatch_is_a_table(command: Command, llama: Path):
    tensors = tensors_of(CONFIGS["llama"])
    tensors["model.norm.weight"] = torch.ones(3)
    write(llama, CONFIGS["llama"], tensors)
    code, out, err = command("generate", "--checkpoint", llama)
    assert (code, out) == (1, "")
    lines = err.splitlines()
    assert lines[0].startswith("tensorstep: the tensors of")
    assert lines[1].split() == ["tensor", "described", "in", "the", "file"]
    assert lines[2].split() == ["norm.weight", "[16]", "[3]", "other", "shape"]
