"""A result as something to read: a page of its own (HTML) or text (Markdown), and its file.

Names, notes and sections are data, whatever they hold: markup and control characters in them are
shown, never obeyed.
"""

from __future__ import annotations

import html as markup
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine.errors import TensorstepError, UsageError
from engine.experiments import plots
from engine.experiments.plots import plain, shortened
from engine.experiments.rows import DIFFERS, EXACT, MADE, WITHIN, Result, Row
from engine.runs import disk

SHOWN = 6  # of a list
LONGEST = 100  # characters of a figure
COLUMNS = ("figure", "published", "here", "difference", "verdict")
SIGNS = {EXACT: "✓", WITHIN: "≈", DIFFERS: "✗", MADE: "•"}
MARKED = re.compile(r"([\\`*_\[\]<>|~&$#!])")  # what Markdown takes for more than text
TICKS = re.compile(r"`+")

STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --back: #ffffff; --dim: #59636e; --line: #d1d9e0;
  --c0: #0060a0; --c1: #b84a00; --c2: #007a55; --c3: #a03e80; --c4: #8a6100; --c5: #5b4bb5; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --back: #0d1117; --dim: #9198a1; --line: #3d444d;
    --c0: #6cb6ff; --c1: #ffa066; --c2: #56d3a0; --c3: #f29ad0; --c4: #e3b341; --c5: #b3a6ff; } }
body { max-width: 68rem; margin: 2rem auto; padding: 0 1rem; color: var(--text);
  background: var(--back); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem;
  border-bottom: 1px solid var(--line); }
td { font-variant-numeric: tabular-nums; } .differs td { font-weight: 600; }
.differs td:last-child { border-left: 4px solid var(--c1); }
pre { white-space: pre-wrap; border-left: 3px solid var(--line); padding-left: 1rem; }
dt { float: left; clear: left; width: 8rem; color: var(--dim); } dd { margin-left: 8rem; }
svg { width: 100%; height: auto; margin: 1rem 0; }
svg text { font: 12px system-ui, sans-serif; fill: var(--text); }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
.axis { fill: none; stroke: var(--dim); } .grid { stroke: var(--line); stroke-width: 1; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); }
.c3 { stroke: var(--c3); } .c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); }
.end { fill: var(--back); stroke-width: 2; }
.leader { stroke: var(--dim); stroke-dasharray: 1 4; }
@media print { body { max-width: none; margin: 0; } }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # of a page that asks for nothing


# --- how things are written ------------------------------------------------------------------


def figure(value: Any) -> str:
    """A number in six significant digits, a long list shortened, nothing as a dash."""
    return shortened(written(value), LONGEST)


def written(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value + 0.0:.6g}"  # no -0
    if isinstance(value, list | tuple):
        return f"[{some([written(each) for each in value[:SHOWN]], len(value))}]"
    if isinstance(value, dict):
        pairs = [f"{plain(str(k))}: {written(v)}" for k, v in list(value.items())[:SHOWN]]
        return f"{{{some(pairs, len(value))}}}"
    return plain(str(value))


def some(parts: list[str], count: int) -> str:
    return ", ".join(parts if count <= SHOWN else [*parts, f"… {count} in all"])


def difference(row: Row) -> str:
    """In three digits: of numbers with its sign, of lists the largest."""
    if row.difference is None:
        return "–"
    if not row.difference:
        return "0"
    if isinstance(row.here, list | tuple):
        return f"≤ {row.difference:.3g}"
    return f"{row.difference:+.3g}"


def kind_of(row: Row) -> str:
    """Which of the four verdicts a row has; one that is none of them counts as new."""
    return next((kind for kind in SIGNS if row.verdict.startswith(kind)), MADE)


def cells_of(row: Row) -> tuple[str, ...]:
    """The cells of a row of the table."""
    verdict = f"{SIGNS[kind_of(row)]} {plain(row.verdict)}"
    here = (figure(row.published), figure(row.here), difference(row))
    return (plain(row.name), *here, verdict)


def summary(result: Result) -> str:
    """How many figures there are, and what they come to."""
    if not result.rows:
        return "No figure was compared."
    counts = Counter(map(kind_of, result.rows))
    parts = [f"{counts[kind]} {kind}" for kind in SIGNS if counts[kind]]
    figures = "1 figure" if len(result.rows) == 1 else f"{len(result.rows)} figures"
    return f"{figures}: {', '.join(parts)}."


# --- HTML ------------------------------------------------------------------------------------


def html(result: Result) -> str:
    """One page that needs nothing else: no script, no other file."""
    title = marked_up(result.title)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{markup.escape(POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        f"<p>{marked_up(result.name)}: {marked_up(summary(result))}</p>",
        *table_of(result),
    ]
    if result.notes:
        parts += ["<h2>Before comparing</h2><ul>"]
        parts += [f"<li>{marked_up(note)}</li>" for note in result.notes]
        parts += ["</ul>"]
    if result.curves:
        parts.append("<h2>Curves</h2>")
        parts += [plots.svg(x, y, lines) for x, y, lines in plots.together(result.curves)]
    for name, lines in result.sections:
        body = "\n".join(marked_up(line) for line in lines)
        parts.append(f"<h2>{marked_up(name)}</h2>\n<pre>{body}</pre>")
    if result.facts:
        parts.append("<h2>Made with</h2><dl>")
        parts += [
            f"<dt>{marked_up(name)}</dt><dd>{marked_up(fact)}</dd>"
            for name, fact in result.facts.items()
        ]
        parts.append("</dl>")
    return "\n".join([*parts, "</body></html>", ""])


def marked_up(text: str) -> str:
    return markup.escape(plain(str(text)))


def table_of(result: Result) -> Iterator[str]:
    if not result.rows:
        return
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    yield f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>'
    for row in result.rows:
        cells = "".join(f"<td>{markup.escape(cell)}</td>" for cell in cells_of(row))
        differs = ' class="differs"' if kind_of(row) == DIFFERS else ""
        yield f"<tr{differs}>{cells}</tr>"
    yield "</tbody></table></div>"


# --- Markdown --------------------------------------------------------------------------------


def markdown(result: Result) -> str:
    """The same as text, its curves drawn in characters."""
    parts = [f"# {escaped(result.title)}", f"{escaped(result.name)}: {escaped(summary(result))}"]
    if result.rows:
        table = [COLUMNS, ("---",) * len(COLUMNS)]
        lines = [f"| {' | '.join(row)} |" for row in table]
        lines += [f"| {' | '.join(map(escaped, cells_of(row)))} |" for row in result.rows]
        parts.append("\n".join(lines))
    if result.notes:
        parts.append("## Before comparing")
        parts.append("\n".join(f"- {escaped(note)}" for note in result.notes))
    if result.curves:
        parts.append("## Curves")
        pictures = plots.together(result.curves)
        parts += [fenced(plots.drawn(x, y, lines)) for x, y, lines in pictures]
    for name, lines in result.sections:
        parts += [f"## {escaped(name)}", fenced([plain(line) for line in lines])]
    if result.facts:
        parts.append("## Made with")
        facts = result.facts.items()
        parts.append("\n".join(f"- {escaped(name)}: {escaped(fact)}" for name, fact in facts))
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    return MARKED.sub(r"\\\1", plain(str(text)))


def fenced(lines: list[str]) -> str:
    """Lines as they are, between fences that none of them can close."""
    longest = max((len(run) for line in lines for run in TICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *lines, fence])


# --- the file --------------------------------------------------------------------------------

WRITERS: dict[str, Callable[[Result], str]] = {".html": html, ".htm": html, ".md": markdown}


def write(result: Result, path: Path) -> None:
    """Write a report by the ending of its name. A file that is there stays as it was until the new
    one is whole.

    Raises UsageError for another ending, TensorstepError where the file cannot be written.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise UsageError(
            f"{str(path)!r} is no name of a report: let it end in .html for a page, or in .md"
        )
    keep(path, writer(result).encode(), "report")


def keep(path: Path, content: bytes, what: str) -> None:
    """Write a file that the user named, so that it is there whole or as it was. Raises
    TensorstepError, in which it is called `what`."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=disk.PART) as folder:
            whole = Path(folder) / path.name
            disk.write_file(whole, content)
            disk.rename(whole, path)
            disk.sync_folder(path.parent)
    except OSError as error:
        if disk.is_full(error):
            raise TensorstepError(
                f"there is no room for the {what} {str(path)!r} on the disk: make some, or give"
                " another place"
            ) from None
        raise TensorstepError(
            f"the {what} {str(path)!r} cannot be written ({error.strerror}): give another place"
        ) from None
