"""Which experiments there are. Knows no tensors, so that the command can check a name."""

from __future__ import annotations

EXPERIMENTS = {
    "lily": "the worked sentence: every figure of both maps",
    "money-bank": "attention and a block by hand: every figure",
    "character-logs": "the character model on job logs: losses of every epoch",
    "tinystories": "window MLP, one head and four heads on 6,000 stories, three seeds each",
    "storybook": "the checkpoints that ship, as they are and trained anew",
}
