"""The files of a run: nothing half-written is ever taken for whole, and no number is changed."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import TensorstepError, UsageError
from engine.processes import Snapshot
from engine.runs import disk
from engine.runs import metrics as metrics_module
from engine.runs.checkpoints import (
    best_of,
    checkpoints_in,
    finite,
    load_checkpoint,
    retain,
    save_checkpoint,
)
from engine.runs.directory import (
    DIED,
    ELSEWHERE,
    RUNNING,
    STARTING,
    RunDirectory,
    Worker,
    new_run,
    run_named,
    runs_folder,
    runs_in,
)
from engine.runs.metrics import MetricsFile, cut, last_row, line_of
from engine.runs.metrics import number as read_number

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
NUMBERS = st.one_of(st.none(), st.floats(width=64), st.integers(-(2**53), 2**53))
CONTENT = st.binary(max_size=300)


@contextmanager
def folder() -> Iterator[Path]:
    """Of one example's own."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@contextmanager
def fails_at(call: int, share: float = 0.5, error: BaseException = FULL) -> Iterator[None]:
    """The disk fails at a write, sync or rename, counted from 0; of a write a share is written."""
    passed = 0
    own = disk.write, disk.sync, disk.rename

    def passes() -> bool:
        nonlocal passed
        passed += 1
        return passed > call

    def write(number: int, content: bytes) -> int:
        if passes():
            own[0](number, content[: int(share * len(content))])
            raise error
        return own[0](number, content)

    def sync(number: int) -> None:
        if passes():
            raise error
        own[1](number)

    def rename(before: Path, after: Path) -> None:
        if passes():
            raise error
        own[2](before, after)

    disk.write, disk.sync, disk.rename = write, sync, rename
    try:
        yield
    finally:
        disk.write, disk.sync, disk.rename = own


def row(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "loss": 8 / step, "lr": 0.1, "time": 1e9 + step, **more}


def written(path: Path, steps: int) -> bytes:
    """A file of metrics of so many steps. Returns what is in it."""
    file = MetricsFile(path)
    for step in range(1, steps + 1):
        file.add(row(step))
    file.close()
    return path.read_bytes()


# --- the disk -----------------------------------------------------------------------------------


@given(CONTENT, CONTENT, st.floats(0, 1))
def test_an_append_is_all_or_nothing(before: bytes, content: bytes, share: float):
    with folder() as path:
        number = os.open(path / "file", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.write(number, before)
        if content:
            with fails_at(0, share), pytest.raises(OSError, match="space"):
                disk.append(number, content)
            assert (path / "file").read_bytes() == before
        disk.append(number, content)
        os.close(number)
        assert (path / "file").read_bytes() == before + content


@given(CONTENT)
def test_a_disk_that_takes_a_byte_at_a_time(content: bytes):
    own = disk.write
    disk.write = lambda number, content: own(number, content[:1])
    try:
        with folder() as path:
            disk.write_whole(path / "file", content)
            assert (path / "file").read_bytes() == content
    finally:
        disk.write = own


@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()])
@pytest.mark.parametrize("call", range(4))  # write, sync, rename, sync of the folder
def test_a_file_is_whole_or_as_it_was(call: int, error: BaseException, tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with fails_at(call, error=error), pytest.raises(type(error)):
        disk.write_whole(path, b"after")
    assert path.read_bytes() == (b"before" if call < 3 else b"after")
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("call", range(7))
def test_a_folder_is_whole_or_not_there(call: int, tmp_path: Path):
    path, files = tmp_path / "step", {"a": b"1", "b": b"2"}
    with fails_at(call), pytest.raises(OSError, match="space"):
        disk.write_folder(path, files)
    if call < 6:
        assert [*tmp_path.iterdir()] == []
    disk.write_folder(path, files)
    assert {each.name: each.read_bytes() for each in path.iterdir()} == files
    assert [*tmp_path.iterdir()] == [path]


def test_what_was_not_finished_is_swept(tmp_path: Path):
    (tmp_path / f"{disk.PART}file").write_text("x")
    (tmp_path / f"{disk.PART}folder").mkdir()
    (tmp_path / f"{disk.PART}folder" / "inner").write_text("x")
    (tmp_path / "kept").write_text("x")
    disk.sweep(tmp_path)
    disk.sweep(tmp_path)
    assert [*tmp_path.iterdir()] == [tmp_path / "kept"]


def test_what_a_full_disk_is():
    assert disk.is_full(FULL)
    assert disk.is_full(OSError(errno.EDQUOT, "quota"))
    assert not disk.is_full(OSError(errno.EIO, "broken"))


# --- metrics ------------------------------------------------------------------------------------


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20))
def test_numbers_come_back_bit_for_bit(values: list[tuple[Any, Any]]):
    with folder() as path:
        file = MetricsFile(path / "metrics")
        for step, (loss, norm) in enumerate(values, 1):
            file.add({"step": step, "loss": loss, "grad_norm": norm})
            found = last_row(path / "metrics")
            assert found is not None
            assert list(found) == ["step", "loss", "grad_norm"]
            assert found["step"] == step
            for value, key in ((loss, "loss"), (norm, "grad_norm")):
                back = read_number(found[key])
                expected = math.nan if value is None else float(value)
                assert back == expected or (math.isnan(back) and math.isnan(expected))
                assert math.copysign(1, back) == math.copysign(1, expected) or math.isnan(back)
        file.close()


def test_lines_are_strict_json():
    line = line_of({"step": 1, "loss": math.nan, "lr": math.inf, "grad_norm": -math.inf, "x": None})
    strict = json.loads(line, parse_constant=lambda name: pytest.fail(name))
    assert strict == {"step": 1, "loss": "nan", "lr": "inf", "grad_norm": "-inf", "x": None}
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1


@pytest.mark.parametrize("content", [None, b"", b'{"step": 1', b"\n", b"no json\n", b"\xff\n"])
def test_no_last_row(content: bytes | None, tmp_path: Path):
    path = tmp_path / "metrics"
    if content is not None:
        path.write_bytes(content)
    assert last_row(path) is None


def test_the_last_row_of_a_long_file_whose_last_line_is_torn(tmp_path: Path):
    path = tmp_path / "metrics"
    content = written(path, 3000)
    assert len(content) > 65_536
    path.write_bytes(content[:-5])
    assert last_row(path) == row(2999)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 60), st.integers(0, 3))
def test_cut(steps: int, kept: int, torn: int, times: int):
    """Lines after a step are moved, also those that were moved before the process was killed; a
    torn one is dropped; a second time nothing is left to do."""
    kept = min(steps, kept)
    with folder() as path:
        metrics, aside = path / "metrics", path / "cut"
        all_lines = written(metrics, steps).splitlines(keepends=True)
        with metrics.open("ab") as file:
            file.write(line_of(row(steps + 1))[:torn])
        if times:  # killed after they were set aside
            aside.write_bytes(b"".join(all_lines[kept:]))
        for turn in range(2):
            assert cut(metrics, aside, kept) == (0 if turn else steps - kept)
            assert metrics.read_bytes() == b"".join(all_lines[:kept])
            there = aside.read_bytes() if aside.exists() else b""
            assert there == b"".join(all_lines[kept:])


@settings(max_examples=20)
@given(st.integers(1, 12), st.integers(0, 11), st.floats(0, 1))
def test_a_cut_that_is_killed(steps: int, kept: int, share: float):
    """At whichever call, with whichever share of it done: cut again, each line is there once."""
    kept = min(kept, steps - 1)
    for call in range(7):
        with folder() as path:
            metrics, aside = path / "metrics", path / "cut"
            lines = written(metrics, steps).splitlines(keepends=True)
            aside.write_bytes(b"earlier\n")
            with contextlib.suppress(KeyboardInterrupt), fails_at(call, share, KeyboardInterrupt()):
                cut(metrics, aside, kept)
            disk.sweep(path)
            cut(metrics, aside, kept)
            assert metrics.read_bytes() == b"".join(lines[:kept])
            assert aside.read_bytes() == b"earlier\n" + b"".join(lines[kept:])


def test_cut_twice_with_other_lines(tmp_path: Path):
    """What is made a second time, and cut again, is kept as well."""
    metrics, aside = tmp_path / "metrics", tmp_path / "cut"
    written(metrics, 5)
    cut(metrics, aside, 3)
    file = MetricsFile(metrics)
    file.add(row(4, again=True))
    file.close()
    cut(metrics, aside, 3)
    assert [json.loads(line) for line in aside.read_bytes().splitlines()] == [
        *(row(4), row(5)),
        row(4, again=True),
    ]


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_cut_of_a_file_that_ends_before(steps: int, tmp_path: Path):
    content = written(tmp_path / "metrics", steps)
    with pytest.raises(TensorstepError, match="ends before step 5, at which the checkpoint"):
        cut(tmp_path / "metrics", tmp_path / "cut", 5)
    assert (tmp_path / "metrics").read_bytes() == content
    assert not (tmp_path / "cut").exists()


@pytest.mark.parametrize("line", [b"x\n", b"{}\n", b'{"step": null}\n', b"[1]\n", b"\n"])
def test_cut_of_a_file_of_something_else(line: bytes, tmp_path: Path):
    content = written(tmp_path / "metrics", 2) + line
    (tmp_path / "metrics").write_bytes(content)
    with pytest.raises(TensorstepError, match="is no line of metrics"):
        cut(tmp_path / "metrics", tmp_path / "cut", 1)
    assert (tmp_path / "metrics").read_bytes() == content


def sample(number: int) -> bytes:
    """A line of samples.jsonl."""
    return json.dumps({"step": 10 * number, "prompt": "", "text": "one\ntwo"}).encode() + b"\n"


@given(st.integers(0, 9), st.integers(0, 99), st.integers(0, 40), st.integers(0, 4))
def test_cut_samples(count: int, kept: int, torn: int, call: int):
    """Those of steps that are made again are taken away, and a torn one; killed meanwhile, all is
    as it was."""
    samples = [sample(number) for number in range(1, count + 1)]
    expected = [line for n, line in enumerate(samples, 1) if 10 * n <= kept]
    with folder() as path:
        file = path / "samples"
        metrics_module.cut_samples(file, kept)
        assert not file.exists()
        file.write_bytes(
            b"".join(samples) + b'{"step": 1, "text": "..........................'[:torn]
        )
        before = file.read_bytes()
        with contextlib.suppress(KeyboardInterrupt), fails_at(call, error=KeyboardInterrupt()):
            metrics_module.cut_samples(file, kept)
        assert file.read_bytes() in (before, b"".join(expected))
        metrics_module.cut_samples(file, kept)
        assert file.read_bytes() == b"".join(expected)


# --- the directory ------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs with a name are."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return runs_folder()


def made(path: Path, **config: Any) -> RunDirectory:
    run = RunDirectory(path)
    run.create({"kind": "training", "name": path.name, "created": 1.0, **config})
    return run


WORKER = Worker(socket.gethostname(), 1, 2.0, "/tmp/x", RUNNING, None, "0.1.0")


def test_a_run_is_made_once(tmp_path: Path):
    run = made(tmp_path / "a" / "b")
    assert run.exists
    assert run.name == "b"
    with pytest.raises(UsageError, match="go on with --resume"):
        made(tmp_path / "a" / "b")


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="has files that are no run's: give an empty directory"):
        made(tmp_path)
    assert [*tmp_path.iterdir()] == [tmp_path / "thesis.tex"]


def test_a_place_that_is_no_folder(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(TensorstepError, match=r"no run can be kept in .*give another folder"):
        made(tmp_path / "file" / "run")


def test_a_disk_that_is_full_when_a_run_is_made(tmp_path: Path):
    with fails_at(0), pytest.raises(TensorstepError, match="No space left"):
        made(tmp_path / "run")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b'{"host": 1}', b"null"])
def test_a_worker_json_that_is_none(content: bytes, tmp_path: Path):
    run = made(tmp_path / "run")
    run.worker.write_bytes(content)
    assert run.read_worker() is None
    assert run.state() == DIED
    assert run.standing()["pid"] is None


WRONG = [b"", b"{", b"\xff", b"[1]", b"{}", b'"text"', b'{"kind": "training", "steps": "x"}']


@pytest.mark.parametrize("content", WRONG)
def test_a_config_that_is_damaged(content: bytes, tmp_path: Path):
    run = RunDirectory(tmp_path)
    run.config.write_bytes(content)
    with pytest.raises(
        TensorstepError, match=r"config\.json' is damaged, or not a run's: put back"
    ):
        run.read_config()
    assert run.name == tmp_path.name


def test_who_works_in_it(tmp_path: Path):
    run = made(tmp_path / "run")
    assert (run.state(), run.is_held()) == (DIED, False)
    number = run.take()
    assert (run.state(), run.is_held()) == (STARTING, True)
    run.write_worker(WORKER)
    assert run.state() == RUNNING
    with pytest.raises(TensorstepError, match=r"another process \(process 1 on .*\) works in"):
        run.take()
    run.write_worker(replace(WORKER, state="finished"))
    assert run.state() == STARTING  # another, which has not yet said a word
    os.close(number)
    assert run.state() == "finished"
    run.write_worker(WORKER)
    assert run.state() == DIED
    run.write_worker(replace(WORKER, host="elsewhere.example"))
    assert run.state() == ELSEWHERE


HOLDS = """
import sys
from pathlib import Path
from engine.runs.directory import RunDirectory
RunDirectory(Path(sys.argv[1])).take()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_goes_with_its_process(tmp_path: Path):
    """However that ends."""
    run = made(tmp_path / "run")
    command, pipe = [sys.executable, "-c", HOLDS, str(run.path)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            assert run.is_held()
            with pytest.raises(TensorstepError, match="another process works in"):
                run.take()
        finally:
            process.kill()
    os.close(run.take())


def test_looking_is_no_obstacle(tmp_path: Path):
    """A lock is taken while others look all the time whether it is."""
    run = made(tmp_path / "run")
    os.close(run.take())
    for _ in range(50):
        assert not run.is_held()
        os.close(run.take())


@pytest.mark.usefixtures("home")
def test_names_count_up():
    for number in range(1, 4):
        run = new_run(None, "mlp")
        assert run.path.name == f"mlp-{number}"
        made(run.path)
    assert new_run(None, "attention").path.name == "attention-1"
    shutil.rmtree(run_named("mlp-2").path)
    assert new_run(None, "mlp").path.name == "mlp-2"


@pytest.mark.usefixtures("home")
def test_a_name_that_is_taken():
    made(new_run("mine", "mlp").path)
    with pytest.raises(UsageError, match="give another --name, or --resume mine"):
        new_run("mine", "mlp")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "-x", "a b", "é", "x" * 65, "a\n", ".hidden"]
)
def test_names_that_are_none(name: str):
    with pytest.raises(UsageError, match="is no name"):
        new_run(name, "mlp")


def test_a_run_by_its_name_or_directory(home: Path, tmp_path: Path):
    named, other = made(home / "mine"), made(tmp_path / "other")
    assert run_named("mine").path == named.path
    assert run_named(str(other.path)).path == other.path
    for text in ("yours", str(tmp_path), str(tmp_path / "nowhere"), "", "../mine", "\0"):
        with pytest.raises(TensorstepError, match="no run is called"):
            run_named(text)


def test_runs_of_a_folder(home: Path):
    """Newest first; what is no run is left out, whatever is in it."""
    for number, created in enumerate([3.0, 1.0, 2.0, None]):
        made(home / f"run-{number}", created=created)
    (home / "file").write_text("x")
    (home / "folder").mkdir()
    (home / "broken").mkdir()
    (home / "broken" / "config.json").write_text("{")
    (home / "odd").mkdir()
    (home / "odd" / "config.json").write_text('{"kind": "training", "created": "yesterday"}')
    assert [run.path.name for run in runs_in(home)] == ["run-0", "run-2", "run-1", "run-3"]
    assert [run.path.name for run in runs_in(home / "run-1")] == ["run-1"]
    assert [*runs_in(home / "nowhere")] == []


# --- checkpoints --------------------------------------------------------------------------------

BITS = torch.tensor([0.0, -0.0, math.nan, math.inf, -math.inf, 1e-45, 3.4e38, 1 / 3])
TENSORS = {
    "parameters.W": BITS.reshape(2, 4),
    "parameters.turned": torch.arange(6.0).reshape(2, 3).T,
    "parameters.scalar": torch.tensor(math.pi, dtype=torch.float64),
    "parameters.half": BITS.bfloat16(),
    "update.W.m": torch.full((2, 4), -0.0),
    "update.empty": torch.empty(0, 3),
    "counts": torch.tensor([2**62, -1]),
}


def same(mine: torch.Tensor, its: torch.Tensor) -> bool:
    """In type, shape and every bit."""
    raw = [each.contiguous().reshape(-1).view(torch.uint8) for each in (mine, its)]
    return mine.dtype == its.dtype and mine.shape == its.shape and torch.equal(raw[0], raw[1])


def save(folder: Path, step: int, val_loss: float | None = None) -> None:
    save_checkpoint(folder, Snapshot(step, {"W": torch.ones(2)}), {"val_loss": val_loss})


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path: Path):
    torch.manual_seed(5)
    saved = save_checkpoint(tmp_path, Snapshot(7, TENSORS), {"val_loss": 0.1 + 0.2, "threads": 3})
    drawn = torch.rand(100)
    (found,) = checkpoints_in(tmp_path)
    assert found == saved
    assert (found.step, found.val_loss) == (7, 0.1 + 0.2)
    torch.manual_seed(6)
    snapshot, facts = load_checkpoint(found)
    assert torch.equal(torch.rand(100), drawn)
    assert snapshot.step == 7
    assert facts["threads"] == 3
    assert set(snapshot.tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert same(snapshot.tensors[name], tensor), name


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize("damage", [flipped, lambda content: content[:-1], lambda content: b""])
def test_a_damaged_checkpoint_is_not_used(damage: Callable[[bytes], bytes], tmp_path: Path):
    save(tmp_path, 5)
    path = tmp_path / "step-00000005" / "state.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    told = "is damaged: delete it, and the one before it is used, if there is one"
    with pytest.raises(TensorstepError, match=told):
        load_checkpoint(checkpoints_in(tmp_path)[0])


@pytest.mark.parametrize("content", [None, b"", b"{", b"{}", b"[]", b'{"step": "x"}'])
def test_folders_that_are_no_checkpoints(content: bytes | None, tmp_path: Path):
    save(tmp_path, 5)
    for name in ("step-00000006", "step-7", "step-x", f"{disk.PART}step-00000008"):
        (tmp_path / name).mkdir()
        if content is not None:
            (tmp_path / name / "state.json").write_bytes(content)
    assert [each.step for each in checkpoints_in(tmp_path)] == [5]


def test_steps_of_nine_figures_are_the_last(tmp_path: Path):
    for step in (123_456_789, 99_999_999, 5):
        save(tmp_path, step)
    assert [each.step for each in checkpoints_in(tmp_path)] == [5, 99_999_999, 123_456_789]


LOSSES = st.lists(st.one_of(st.none(), st.sampled_from([1.0, 2.0, 3.0])), min_size=1, max_size=8)


@settings(max_examples=40)
@given(LOSSES, st.sampled_from([0, 1, 2, 3]))
def test_which_checkpoints_are_kept(losses: list[float | None], every: int):
    """The last, the best (the earlier of two), those of every N steps: whether the others are
    deleted as they come or at once."""
    best = min((x for x in losses if x is not None), default=None)
    expected = {len(losses)} | {n for n in range(1, len(losses) + 1) if every and n % every == 0}
    if best is not None:
        expected.add(losses.index(best) + 1)
    for at_once in (True, False):
        with folder() as path:
            for step, loss in enumerate(losses, 1):
                save(path, step, loss)
                if not at_once:
                    retain(path, every)
            retain(path, every)
            kept = checkpoints_in(path)
            assert {each.step for each in kept} == expected
            assert len([*path.iterdir()]) == len(kept)
            found = best_of(kept)
            assert (found and found.val_loss) == best


def test_a_loss_that_is_not_finite_is_never_the_best(tmp_path: Path):
    for step, loss in enumerate([math.nan, 2.0, -math.inf, math.inf], 1):
        save(tmp_path, step, finite(loss))
    found = best_of(checkpoints_in(tmp_path))
    assert found is not None
    assert found.step == 2
    state = (tmp_path / "step-00000001" / "state.json").read_bytes()
    json.loads(state, parse_constant=lambda name: pytest.fail(name))


def test_a_full_disk_leaves_no_checkpoint(tmp_path: Path):
    save(tmp_path, 5)
    for call in range(6):
        with fails_at(call), pytest.raises(OSError, match="space"):
            save(tmp_path, 10)
        assert [each.name for each in tmp_path.iterdir()] == ["step-00000005"]
    save(tmp_path, 10)
    assert [each.step for each in checkpoints_in(tmp_path)] == [5, 10]
