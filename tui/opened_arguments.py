"""What can be written after `tensorstep open` and `generate`, and of what is opened after `states`
and `explain`."""

from __future__ import annotations

import argparse
from typing import Any

from engine.errors import UsageError
from engine.maps import CHECKPOINT, EXAMPLES, GENERATION, MODULE, TRAINING
from engine.service.options import EXAMPLE, MODULE_FACTORY, Options
from engine.service.saved import SAVED, SHIPPED, saved_in
from tui.drawing_arguments import add_filters

OPENED = "DIR|HUB_ID|checkpoint:NAME|example:NAME|module:M:FACTORY"
WORKED = f"{EXAMPLE}lily"  # the worked sentence
SET_BY_IT = ("model", "tokenizer", "width", "hidden", "heads", "blocks")  # by what is opened
LEARNING_RATE = 0.001  # of a model that has learnt already: 0.1 would undo it
DEFAULT_CONTEXT = 16  # positions of a training window of a checkpoint


def add_open_commands(commands: Any, parents: list[Any]) -> None:
    """The commands over a model that is there already; `parents` have the options of a walk."""
    add_open(commands, parents)
    add_generate(commands)
    add_export(commands)


def add_open(commands: Any, parents: list[Any]) -> None:
    made = commands.add_parser(
        "open",
        help="a model that is there already: a folder, a name on the hub, an example, your own",
        description="Walk a model that was trained elsewhere (GPT-2, Llama, Mistral and Qwen2 as"
        " Hugging Face keeps them), a hand-sized example, or any module that a factory of yours"
        " makes: it returns (model, loss), where loss(step) gives the loss of a step, or (model,"
        " inputs).",
        parents=parents,
        allow_abbrev=False,
    )
    made.add_argument("opened", metavar=OPENED, help="example:money-bank-4, module:mine:make")
    made.add_argument("--dtype", metavar="T", default=argparse.SUPPRESS, help="float32, bf16, ...")
    made.add_argument("--goto", metavar="STEP:STATE:CELL", help="open there")
    made.add_argument("--map", metavar="MAP", help="training or generation")
    made.add_argument("--seed", type=int, metavar="N", help="of the batches, or the factory (11)")
    made.add_argument("--ascii", action="store_true", help="draw with ASCII alone")


def add_opened(made: argparse.ArgumentParser) -> None:
    """What `open` takes, for a command without a screen."""
    add = made.add_argument
    suppress = argparse.SUPPRESS
    add("--open", dest="opened", metavar=OPENED, default=suppress, help="of what `open` takes")
    add("--dtype", metavar="T", default=suppress, help="of what is opened: float32, bf16, ...")


def add_generate(commands: Any) -> None:
    made = commands.add_parser(
        "generate",
        help="continue a text with a model that was trained elsewhere",
        description="Print how a model continues a text, as it comes. An empty prompt starts from"
        " what its texts begin with.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--checkpoint", dest="opened", metavar="DIR|HUB_ID", required=True, help="the model")
    add("--prompt", metavar="TEXT", default="", help="the text to continue")
    add("--max-new-tokens", dest="tokens", type=int, metavar="N", default=50, help="at most (50)")
    add_filters(made)
    add(
        "--seed",
        "--draw-seed",
        dest="draw_seed",
        type=int,
        metavar="N",
        help="of the draws (0, where tokens are drawn)",
    )
    add("--dtype", metavar="T", help="float32, bf16, float16 or float64 (as it is stored)")
    add("--no-cache", action="store_true", help="compute all positions anew for each token")
    add("--json", action="store_true", help="one JSON object: ids, text and more")


def add_export(commands: Any) -> None:
    made = commands.add_parser(
        "export",
        help="a training run's best parameters as a folder that `open` takes",
        description="Write the parameters of a run's best checkpoint by validation to a new folder,"
        " with its tokenizer and a card that says what made it.",
        allow_abbrev=False,
    )
    made.add_argument("what", metavar="NAME|DIR", help="the run")
    made.add_argument("to", metavar="FOLDER", help="a new folder")
    made.add_argument("--title", metavar="TEXT", help="what it is, in a few words")
    made.add_argument("--prompt", metavar="TEXT", help="what it opens with: it continues it well")
    made.add_argument("--json", action="store_true", help="one JSON object")


def check_map(name: str) -> None:
    if name not in (TRAINING, GENERATION):
        raise UsageError(f"there is no {name!r} map: use training or generation")


def opened_values(given: argparse.Namespace) -> dict[str, Any]:
    """The options that go with what is opened in place of a model that is trained here. Raises
    UsageError."""
    values = {"train_steps": 0, "context": DEFAULT_CONTEXT}
    values = {key: value for key, value in values.items() if key not in vars(given)}
    opened = given.opened
    if given.command == "generate" and opened.startswith(EXAMPLE):
        raise UsageError("an example does not write: open it instead")
    if opened == WORKED:
        return {"opened": None}
    saved = saved_in(opened)
    if saved is not None:
        check_map(map_of(given))
        said = {key: value for key, value in vars(given).items() if value is not None}
        return saved.options_with(said)
    for name in SET_BY_IT:
        if getattr(given, name, None) is not None:
            raise UsageError(f"--{name} goes with a model that is trained here: leave it out")
    if opened.startswith(MODULE_FACTORY):
        if map_of(given) != TRAINING or given.command == "generate":
            raise UsageError("a module of your own has the training map: there is no other")
        return {**values, "model": MODULE}
    check_map(map_of(given))
    if given.command == "generate" and given.tokens < 1:
        raise UsageError(f"--max-new-tokens {given.tokens} is too small: give 1 or more")
    named: dict[str, Any] = {"lr": LEARNING_RATE, **values, "model": CHECKPOINT}
    if "lr" in given:
        named["lr"] = given.lr
    if opened.startswith(EXAMPLE):
        named["model"] = opened.removeprefix(EXAMPLE)
        if named["model"] not in EXAMPLES:
            raise UsageError(f"there is no example {named['model']!r}: use {', '.join(EXAMPLES)}")
    return named


def map_of(given: argparse.Namespace) -> str:
    """The map that is asked for, or the first of what is opened."""
    if given.command == "states":
        return TRAINING if given.what == "train" else GENERATION
    named: str | None = getattr(given, "map", None)
    opened: str = getattr(given, "opened", None) or WORKED
    trains = opened == WORKED or opened.startswith(MODULE_FACTORY)
    return named or (TRAINING if trains else GENERATION)


def elsewhere() -> list[tuple[str, str]]:
    """What ships and can be opened from the screen: each as `open` takes it, and its title."""
    found = [(f"{SAVED}{name}", saved_in(f"{SAVED}{name}")) for name in SHIPPED]
    titles = [(key, saved.title) for key, saved in found if saved is not None]
    return [*titles, (WORKED, "the worked sentence, not trained")]


def options_of_shipped(key: str) -> tuple[Options, str]:
    """The options of one of `elsewhere`, and the map that it opens on."""
    saved = None if key == WORKED else saved_in(key)
    if saved is None:
        return Options(), TRAINING
    return Options.from_json({**saved.options_with({}), "opened": key}), GENERATION
