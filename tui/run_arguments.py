"""What can be written after `tensorstep train`, `attach`, `runs`, `stop` and `doctor`."""

from __future__ import annotations

import argparse
from typing import Any

from engine.errors import UsageError
from tui.drawing_arguments import DRAWS

Commands = Any  # argparse's own type of it is private
RUN = (  # what is a run's own, beside the options of a walk
    *("steps", "schedule", "eval_every", "checkpoint_every", "keep_every", "sample_every"),
    *("device", "dtype", "breaks", "nonfinite", "edits"),
)


def add_run_commands(commands: Commands, walked: list[argparse.ArgumentParser]) -> None:
    """`walked`: parsers of the options of a walk, which `train` has, too."""
    add_train(commands, walked)
    add_attach(commands)
    add_runs(commands)
    made = commands.add_parser(
        "stop",
        help="stop a training run, which saves first",
        description="Have a run save a checkpoint and end. `train --resume` goes on with it.",
        allow_abbrev=False,
    )
    made.add_argument("run", metavar="NAME|DIR", help="the run")
    made = commands.add_parser(
        "doctor",
        help="what this machine and this terminal can do",
        description="Print versions, devices, threads, what the terminal can do, and whether"
        " training runs outlive a logout here.",
        allow_abbrev=False,
    )
    made.add_argument("--json", action="store_true", help="one JSON object")


def add_train(commands: Commands, walked: list[argparse.ArgumentParser]) -> None:
    made = commands.add_parser(
        "train",
        help="train in a process of its own, and watch it",
        description="Start a training that outlives this terminal, and watch it. Without options it"
        " is the measured experiment: context 64, width 64, hidden 256, batch 512, 6,000 steps,"
        " adamw, gradients clipped at 1, a validation every 750 steps; on the storybook.",
        parents=walked,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--steps", type=int, metavar="N", help="optimizer steps in all (6000)")
    add("--seed", type=int, metavar="N", help="of parameters and batches (11)")
    add("--schedule", metavar="S", help="constant, linear or cosine[:warmup=N,floor=X]")
    add("--no-clip", action="store_true", help="leave gradients as they are")
    add("--eval-every", type=int, metavar="N", help="steps between validations (750); 0: none")
    add("--checkpoint-every", type=int, metavar="N", help="steps between checkpoints (100)")
    add("--keep-every", type=int, metavar="N", help="keep the one of every N steps for good")
    add("--sample-every", type=int, metavar="N", help="steps between sampled texts (750); 0: none")
    add("--device", metavar="D", help="auto, cuda, mps or cpu")
    add("--dtype", metavar="T", help="float32, bf16 or float64")
    add(
        "--break",
        dest="breaks",
        action="append",
        metavar="CONDITION",
        help="pause when it holds: 'loss > 8', 'norm(\"gradients.W_Q.weight\") > 10'",
    )
    add("--no-break-on-nonfinite", dest="nonfinite", action="store_false", help="train on with nan")
    add("--name", metavar="NAME", help="what the run is called (attention-1, ...)")
    add("--run-dir", metavar="DIR", help="the run's directory, instead of a name")
    add("--resume", metavar="NAME|DIR", help="go on with a run from its last checkpoint")
    add("--no-screen", action="store_true", help="stay here to the end, without a screen")
    add("--json", action="store_true", help="with --no-screen: one JSON object a step")
    add("--read-only", action="store_true", help=argparse.SUPPRESS)


def add_attach(commands: Commands) -> None:
    made = commands.add_parser(
        "attach",
        help="watch a training run that is going, or has ended",
        description="Open the live screen of a run, of the newest one without a name. A process can"
        " be attached to where `tensorstep train` or `engine.watch` started it, and on the host on"
        " which it runs.",
        allow_abbrev=False,
    )
    made.add_argument("run", metavar="NAME|DIR", nargs="?", help="the run")
    made.add_argument("--read-only", action="store_true", help="look, and change nothing")
    made.add_argument("--ascii", action="store_true", help="draw with ASCII alone")


def add_runs(commands: Commands) -> None:
    made = commands.add_parser(
        "runs",
        help="the training runs there are",
        description="List the training runs, newest first: those with a name, or those in DIR.",
        allow_abbrev=False,
    )
    made.add_argument("--run-dir", metavar="DIR", help="a run's directory, or a folder of them")
    made.add_argument("--json", action="store_true", help="one JSON list")


def check_train(given: dict[str, Any]) -> None:
    """Raises UsageError for options that contradict each other."""
    if "json" in given and "no_screen" not in given:
        raise UsageError("--json goes with --no-screen")
    if "name" in given and "run_dir" in given:
        raise UsageError("--name and --run-dir are both given: give one of them")
    if "resume" in given and {"name", "run_dir"} & set(given):
        raise UsageError("--resume names the run already: leave --name and --run-dir out")
    for name in (*DRAWS, "train_steps"):
        if name in given:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is for generating: leave it out of train")
    if "clip" in given and "no_clip" in given:
        raise UsageError("--clip and --no-clip are both given: give one of them")
