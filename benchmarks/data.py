"""From a file of stories to windows that are ready, against lists of lists; and a batch's gathering
against a training step.

Each way runs in a process of its own, so that its growth of resident memory is its own. The stories
are 6,000 of the shared real ones; without them, of the storybook.

    python -m benchmarks.data [--json] [--smoke]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path

import torch

import engine
from benchmarks.report import Row, median, resident_bytes, run
from engine.data.split import TRAIN, normalized, split_of
from engine.text.words import tokenize

SHARED = Path(__file__).parents[2] / "shared" / "data" / "tinystories" / "stories.jsonl"
MEGABYTE = 2**20
WIDTH = 64


def stories(count: int, folder: str) -> Path:
    """A JSON Lines file of that many stories."""
    file = Path(folder) / "stories.jsonl"
    if SHARED.exists():
        with SHARED.open("rb") as lines:
            file.write_bytes(b"".join(islice(lines, count)))
    else:
        texts = engine.open_corpus(f"storybook:{count}").texts
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return file


def ready(path: str) -> int:
    """Our way. Returns how many windows train."""
    prepared = engine.prepare(engine.open_corpus(path), WIDTH)
    KEPT.append(prepared)
    return len(prepared.windows)


def lists_of_lists(path: str) -> int:
    """The plain way, with the same split, vocabulary and windows: everything in lists."""
    with open(path, encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    unique = list({normalized(text): text for text in reversed(texts)}.values())
    sides: dict[str, list[list[str]]] = {}
    for text in unique:
        sides.setdefault(split_of(text), []).append(tokenize(text))
    counts = Counter(token for tokens in sides[TRAIN] for token in tokens)
    frequent = sorted((t for t, n in counts.items() if n > 1), key=lambda t: (-counts[t], t))
    ids = {token: i for i, token in enumerate(frequent[:3996], 4)}
    windows = {}
    for side, documents in sides.items():
        contexts, targets = [], []
        for tokens in documents:
            encoded = [0] * WIDTH + [1, *(ids.get(token, 3) for token in tokens), 2]
            for at in range(WIDTH + 1, len(encoded)):
                contexts.append(encoded[at - WIDTH : at])
                targets.append(encoded[at])
        tensors = torch.tensor(contexts), torch.tensor(targets)  # what a training loop indexes
        windows[side] = contexts, targets, tensors
    KEPT.append(windows)
    return len(windows[TRAIN][1])


KEPT: list[object] = []  # what was made, while memory is read
WAYS = {"ready": ready, "lists_of_lists": lists_of_lists}


def alone(way: str, path: Path) -> tuple[float, float, int]:
    """Seconds, MB of growth and the windows of one way, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.data", "--way", way, str(path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds, megabytes, windows = json.loads(told)
    return seconds, megabytes, windows


def one_way(way: str, path: str) -> None:
    """What the process of one way does: prints seconds, MB and windows."""
    engine.prepare(["warm the imports up"], 4)
    before, start = resident_bytes(), time.perf_counter()
    windows = WAYS[way](path)
    seconds = time.perf_counter() - start
    print(json.dumps([seconds, (resident_bytes() - before) / MEGABYTE, windows]))


def preparing(count: int, times: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = stories(count, folder)
        plain = alone("lists_of_lists", path)
        ours = [alone("ready", path) for _ in range(times)]
    if plain[2] != ours[0][2]:
        raise SystemExit(f"the two ways make {plain[2]} and {ours[0][2]} windows")
    seconds = median([each[0] for each in ours])
    note = f"lists {plain[0]:.2f} s, ours {seconds:.2f} s, {plain[2]:,} windows"
    return [
        Row(f"{count} stories to windows: lists / ours", plain[0] / seconds, "", 20, note),
        Row("growth of memory", median([each[1] for each in ours]), "MB", 60),
        Row("growth of memory with lists", plain[1], "MB"),
    ]


def gathering(count: int, batch: int, times: int) -> list[Row]:
    """A batch's gathering as a share of a drained step of the one-head model."""
    prepared = engine.prepare(engine.open_corpus(f"storybook:{count}"), WIDTH)
    words = len(prepared.tokenizer)
    model = engine.CausalAttentionLM(words, WIDTH, 64, 64, 64, 256)
    batches = engine.SampledRows(len(prepared.windows), batch, 11)
    training = engine.Training(model, prepared.data, batches, engine.AdamW(0.003))
    training.evaluate_every = 0
    engine.drain(training.states(0))
    steps, gathers = [], []
    for step in range(1, times + 1):
        rows = batches.rows(step)
        start = time.perf_counter()
        _ = prepared.windows.contexts[rows], prepared.windows.targets[rows]
        gathers.append(time.perf_counter() - start)
        start = time.perf_counter()
        engine.drain(training.states(step))
        steps.append(time.perf_counter() - start)
    share = 100 * median(gathers) / median(steps)
    note = f"{1e6 * median(gathers):.0f} us of {1e3 * median(steps):.1f} ms"
    return [Row(f"gathering a batch of {batch} / a training step", share, "%", 2, note)]


def measure(smoke: bool) -> list[Row]:
    torch.manual_seed(0)
    count, times, batch, steps = (300, 1, 64, 5) if smoke else (6000, 5, 512, 40)
    return [*preparing(count, times), *gathering(min(count, 3000), batch, steps)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--way"]:
        one_way(*sys.argv[2:4])
    else:
        run("data", measure)
