"""A corpus as plain lists, and the browser's screen read back: what the tests of both compare."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass

from rich.cells import cell_len

from tests.tui.screen import Screen

PAD, BOS, EOS = "<PAD>", "<BOS>", "<EOS>"
SIDES = ("train", "validation", "test")
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+|\S")
LENGTHS = [1, 2, 4, 8, 16, 32, 64, 128, 256]


# --- a corpus, the slow way ------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    """The tokens of an ASCII text with its boundaries."""
    assert text.isascii()
    return [BOS, *WORD.findall(text.lower()), EOS]


def side_of(text: str) -> str:
    """By the stated rule: 80, 10 and 10 of a hundred, by a hash of seed and plain text."""
    plain = " ".join(text.lower().split())
    digest = hashlib.sha256(b"31415\0" + plain.encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return SIDES[0] if share < 0.8 else SIDES[1] if share < 0.9 else SIDES[2]


def vocabulary_of(texts: list[str], min_freq: int = 2, most: int = 4000) -> list[str]:
    """Of the texts that train: special tokens, then the most frequent first, equals sorted."""
    counts = Counter(token for text in texts for token in words_of(text)[1:-1])
    known = sorted((t for t in counts if counts[t] >= min_freq), key=lambda t: (-counts[t], t))
    return [PAD, BOS, EOS, "<UNK>", *known][:most]


def windows_of(tokens: list[str], context: int) -> list[tuple[list[str], str]]:
    """Contexts and targets as lists of lists: one pair for every token but the first."""
    padded = [PAD] * context + tokens
    return [(padded[i : i + context], tokens[i]) for i in range(1, len(tokens))]


def places_of(texts: list[str], wanted: str) -> list[tuple[int, int]]:
    """Story and token of everything that a text is found in, whatever its case."""
    found = []
    for number, text in enumerate(texts):
        spans = [each.span() for each in WORD.finditer(text.lower())]
        for match in re.finditer(re.escape(wanted.lower()), text.lower()):
            place = next(i for i, (_, end) in enumerate(spans, 1) if end > match.start())
            found.append((number, place))
    return sorted(set(found))


# --- the screen ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """One line of the browser: its label, as much of the context as there was room for, and the
    target."""

    label: int
    seen: str
    target: str
    room: int  # cells there were for the context


@dataclass(frozen=True)
class Browser:
    """What the browser shows, section by section."""

    story: int
    stories: int
    side: str
    text: list[str]
    count: int
    flow: list[str]
    at: int
    last: int
    context: int
    windows: list[Pair]
    lengths: list[Pair]
    foot: str


HEADING = re.compile(r"corpus  (?:.*) story ([\d,]+), of 0 to ([\d,]+): (\w+)\s*")
COUNTED = re.compile(r"TOKENS  ([\d,]+), each with its ID\s*")
WINDOWED = re.compile(r"WINDOWS  ([\d,]+) of ([\d,]+), context (\d+), then the target\s*")


def read(screen: Screen, arrow: str = "→", dots: str = "…") -> Browser:
    """The browser's screen, with every line as wide as the screen is."""
    screen.check()
    lines = screen.lines
    heading = HEADING.fullmatch(lines[0])
    assert heading is not None, screen.text
    tokens, windows, target = (
        next(y for y, each in enumerate(lines) if each.startswith(f"{title}  "))
        for title in ("TOKENS", "WINDOWS", "THE SAME TARGET")
    )
    counted, windowed = COUNTED.fullmatch(lines[tokens]), WINDOWED.fullmatch(lines[windows])
    assert counted is not None, lines[tokens]
    assert windowed is not None, lines[windows]
    for y in (1, tokens - 1, windows - 1, target - 1):
        assert not lines[y].strip()
    at, last, context = (int(each.replace(",", "")) for each in windowed.groups())
    width = screen.app.size.width
    return Browser(
        story=int(heading[1].replace(",", "")),
        stories=int(heading[2].replace(",", "")) + 1,
        side=heading[3],
        text=[each.rstrip() for each in lines[2 : tokens - 1]],
        count=int(counted[1].replace(",", "")),
        flow=[each.rstrip().removesuffix(dots) for each in lines[tokens + 1 : windows - 1]],
        at=at,
        last=last,
        context=context,
        windows=[
            pair_of(each, arrow, width)
            for each in "\n".join(lines[windows + 1 : target - 1]).rstrip().split("\n")
        ],
        lengths=[
            pair_of(each, arrow, width)
            for each in lines[target + 1 : len(lines) - 1]
            if each.strip()
        ],
        foot=lines[-1].rstrip(),
    )


def pair_of(line: str, arrow: str, width: int) -> Pair:
    label, rest = line[:6], line[6:]
    assert rest.startswith("  "), line
    seen, found, target = rest[2:].rstrip().rpartition(f" {arrow} ")
    assert found, line
    return Pair(int(label), seen, target, width - 8 - cell_len(f" {arrow} {target}"))


def same(pair: Pair, context: list[str], dots: str = "…") -> bool:
    """Whether what is seen of a context is it or, after dots, as many of its last tokens as there
    is room for."""
    whole = " ".join(context)
    if pair.seen == whole:
        return cell_len(whole) <= pair.room
    kept = pair.seen.removeprefix(f"{dots} ")
    count = len(kept.split(" "))
    more = " ".join(context[-count - 1 :])
    needed = cell_len(more) + (cell_len(dots) + 1 if count + 1 < len(context) else 0)
    return kept == " ".join(context[-count:]) and needed > pair.room


def check_pairs(found: Browser, tokens: list[str], arrow: str = "→", dots: str = "…") -> None:
    """Counts, every window that is shown and every context length are those of the lists."""
    assert found.count == len(tokens)
    assert found.last == len(tokens) - 1
    expected = windows_of(tokens, found.context)
    numbers = [pair.label for pair in found.windows]
    assert numbers == list(range(found.at - len(numbers) + 1, found.at + 1))
    assert numbers[0] >= 1
    for pair in found.windows:
        context, target = expected[pair.label - 1]
        assert pair.target == target
        assert same(pair, context, dots), (pair, context)
    lengths, most = sorted({*LENGTHS, found.context}), len(found.lengths)
    first = max(0, lengths.index(found.context) + 1 - most)
    assert [pair.label for pair in found.lengths] == lengths[first : first + most]
    assert len(found.lengths) >= 3
    for pair in found.lengths:
        context, target = windows_of(tokens, pair.label)[found.at - 1]
        assert pair.target == target
        assert same(pair, context, dots), (pair, context)


def check_flow(found: Browser, tokens: list[str], ids: list[str]) -> None:
    """The tokens with their IDs are a run of the story's own that holds the target."""
    told = " ".join(found.flow).split()
    whole = [f"{token} {number}" for token, number in zip(tokens, ids, strict=True)]
    shown = [" ".join(pair) for pair in zip(told[::2], told[1::2], strict=True)]
    runs = [
        first
        for first in range(len(whole) - len(shown) + 1)
        if whole[first : first + len(shown)] == shown and first <= found.at < first + len(shown)
    ]
    assert runs, (shown, found.at)
