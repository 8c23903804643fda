"""Answers to requests for whole works, which need nothing that is open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.progress import Tell
from engine.service.line import Answer


class WorkDesk:
    """The part of a desk that exports, reproduces, and reads what was learned."""

    tell: Tell | None

    def export(
        self, run: str, to: str, title: str | None = None, prompt: str | None = None
    ) -> Answer:
        """A run's best parameters as a folder: see `engine.service.exporting`."""
        from engine.runs.directory import run_named
        from engine.service.exporting import export

        told: dict[str, Any] = export(run_named(run), Path(to), title, prompt, self.tell)
        return told

    def reproduce(
        self, name: str, folder: str, given: dict[str, Any], report: str | None = None
    ) -> Answer:
        """A measured experiment, run whole: see `engine.experiments`."""
        from engine.experiments.reproduction import reproduce

        path = None if report is None else Path(report)
        return reproduce(name, Path(folder), given, path, self.tell).to_json()

    def learned(
        self,
        what: list[str],
        asked: dict[str, Any],
        plane: str | None = None,
        report: str | None = None,
    ) -> Answer:
        """What checkpoints have learned: see `engine.experiments.learning`."""
        from engine.experiments.findings import Questions
        from engine.experiments.learning import learned
        from engine.experiments.report import write

        questions = Questions.from_json(asked)
        result = learned(what, questions, None if plane is None else Path(plane), self.tell)
        if report is not None:
            write(result, Path(report))
        return result.to_json()
