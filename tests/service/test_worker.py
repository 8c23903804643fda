"""The worker: every method, its mistakes in one sentence, and the manners of the process."""

from __future__ import annotations

import io
import json
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine.errors import TensorstepError, UsageError
from engine.service.desk import Desk, seek
from engine.service.line import reply_to
from engine.service.options import Options
from engine.service.protocol import encode, read_frame
from tests.engine.worked import figure

MLP = {"map": "training", "model": "mlp"}
ATTENTION = {"map": "training", "model": "attention"}
GENERATION = {"map": "generation", "model": "mlp"}


@pytest.fixture
def desk() -> Desk:
    """With the worked sentence open."""
    made = Desk()
    made.answer("open", {"options": Options().to_json()})
    return made


def answer(desk: Desk, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """An answer as it crosses: through JSON and back."""
    reply, payload = reply_to(desk.answer, {"id": 5, "method": method, "params": params})
    found = read_frame(io.BytesIO(encode(reply, payload)))
    assert found is not None
    assert found[0]["id"] == 5
    return found[0]


def result(desk: Desk, method: str, **params: Any) -> dict[str, Any]:
    reply = answer(desk, method, params)
    assert "error" not in reply, reply
    return reply["result"]


def error(desk: Desk, method: str, **params: Any) -> dict[str, Any]:
    reply = answer(desk, method, params)
    assert "result" not in reply
    return reply["error"]


def place(found: dict[str, Any]) -> tuple[int, str]:
    return found["state"]["step"], found["state"]["name"]


# --- opening ---------------------------------------------------------------------------------


def test_open_tells_what_there_is(desk: Desk):
    found = result(desk, "open", options=Options().to_json())
    assert (found["vocabulary"], found["corpus"], found["device"]) == (10, "lily", "cpu")
    assert found["torch"].split(".")[0].isdigit()
    assert isinstance(found["pid"], int)


def test_another_open_is_another_session(desk: Desk):
    result(desk, "move", **MLP, how="seek", step=1, name="loss")
    found = result(desk, "open", options=Options(sentence="one two three").to_json())
    assert (found["vocabulary"], found["corpus"]) == (7, "your sentence")
    assert place(result(desk, "look", **MLP)) == (0, "stories")


def test_nothing_is_open_yet():
    for method in ("look", "parameters", "losses"):
        told = error(Desk(), method, **MLP)
        assert told == {"sentence": "nothing is open yet", "exit_code": 2}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"text": "/nowhere"}, "there is no file '/nowhere'"),
        ({"sentence": "  "}, "holds no token"),
        ({"rows": [0, 7]}, "there is no window 7"),
    ],
)
def test_what_cannot_be_opened(options: dict[str, Any], words: str):
    told = error(Desk(), "open", options=options)
    assert words in told["sentence"]
    assert told["exit_code"] == 2
    assert "trace" not in told


# --- looking and moving ----------------------------------------------------------------------


def test_look_at_where_the_walk_stands(desk: Desk):
    found = result(desk, "look", **MLP)
    assert found["state"] == {
        "map": "training",
        "step": 0,
        "stage": "stories",
        "name": "stories",
        "role": "data",
        "kind": "text",
        "shape": [1],
        "axes": ["N"],
        "dtype": "str",
        "formula": "the documents, as they were given",
    }
    assert found["standing"]["step"] == 0
    assert found["standing"]["loss"] is None


def test_look_at_another_state_moves_nothing(desk: Desk):
    result(desk, "move", **MLP, how="seek", step=1, name="loss")
    assert place(result(desk, "look", **MLP, name="logits", step=1)) == (1, "logits")
    found = result(desk, "look", **MLP, name="parameters.vocab_head.bias", step=0)
    assert found["state"]["role"] == "parameter"
    assert place(result(desk, "look", **MLP)) == (1, "loss")


@pytest.mark.parametrize(
    ("how", "params", "there"),
    [
        ("forward", {}, (1, "hidden.pre")),
        ("back", {}, (1, "embedding")),
        ("next_stage", {}, (1, "hidden.pre")),
        ("back_stage", {}, (1, "embedding")),
        ("next_step", {}, (2, "flatten")),
        ("back_step", {}, (0, "stories")),
        ("to_stage", {"name": "loss"}, (1, "probabilities")),
        ("to_stage", {"name": "split"}, (0, "split")),
        ("seek", {"step": 3, "name": "loss"}, (3, "loss")),
        ("seek", {"step": 2}, (2, "batch.X")),
        ("seek", {"step": 1, "name": "parameters.vocab_head.bias"}, None),
    ],
)
def test_every_way_to_move(desk: Desk, how: str, params: dict, there: tuple[int, str] | None):
    result(desk, "move", **MLP, how="seek", step=1, name="flatten")
    found = result(desk, "move", **MLP, how=how, **params)
    assert found["moved"] is True
    assert found["ended"] is None
    if there is None:  # a parameter is looked at beside the walk, as it stood after step 1
        assert place(found) == (1, "parameters.vocab_head.bias")
        there = (1, "flatten")
    else:
        assert place(found) == there
    assert place(result(desk, "look", **MLP)) == there
    assert found["standing"]["step"] == there[0]


def test_the_ends_of_a_walk(desk: Desk):
    for how in ("back", "back_stage", "back_step"):
        found = result(desk, "move", **MLP, how=how)
        assert (found["moved"], place(found)) == (False, (0, "stories"))
    desk.answer("open", {"options": Options(tokens=2).to_json()})
    result(desk, "move", **GENERATION, how="seek", step=2, name="history")
    found = result(desk, "move", **GENERATION, how="forward")
    assert (found["moved"], place(found)) == (False, (2, "history"))
    assert found["ended"] == "yes: the budget of 2 new tokens is used up"
    found = result(desk, "move", **MLP, how="to_stage", name="validation")
    assert (found["moved"], place(found)) == (False, (0, "stories"))


def test_walks_of_maps_and_models_are_independent(desk: Desk):
    result(desk, "move", **MLP, how="seek", step=2, name="hidden")
    result(desk, "move", **ATTENTION, how="seek", step=1, name="weights")
    result(desk, "move", **GENERATION, how="seek", step=1, name="choice")
    assert place(result(desk, "look", **MLP)) == (2, "hidden")
    assert place(result(desk, "look", **ATTENTION)) == (1, "weights")
    assert place(result(desk, "look", **GENERATION)) == (1, "choice")


def test_losses(desk: Desk):
    """Published: before and after one step of the MLP."""
    assert result(desk, "losses", **MLP) == {"first": 1, "losses": []}
    result(desk, "move", **MLP, how="seek", step=2, name="loss")
    first, second = result(desk, "losses", **MLP)["losses"]
    assert first == figure(2.2983837127685547)
    assert second == figure(2.2394907474517822)
    assert result(desk, "losses", **MLP, most=1) == {"first": 2, "losses": [second]}
    assert result(desk, "move", **MLP, how="seek", step=1, name="loss")["standing"]["loss"] == first


def test_parameters_in_their_order(desk: Desk):
    names = [
        *("token_embedding.weight", "hidden_layer.weight", "hidden_layer.bias"),
        *("vocab_head.weight", "vocab_head.bias"),
    ]
    assert result(desk, "parameters", **MLP) == {
        "names": [f"parameters.{name}" for name in names],
        "step": 0,
    }
    result(desk, "move", **MLP, how="seek", step=3)
    assert result(desk, "parameters", **MLP)["step"] == 2


def test_dump_is_the_state_with_its_values(desk: Desk):
    result(desk, "move", **MLP, how="seek", step=1, name="batch.X")
    found = result(desk, "dump", **MLP, max_values=8)
    assert found == {
        **result(desk, "look", **MLP)["state"],
        "values": [[0, 1, 8, 7], [1, 8, 7, 5]],
    }
    assert "values" not in result(desk, "dump", **MLP, max_values=7)


def test_table_is_a_slice_in_bytes(desk: Desk):
    result(desk, "move", **ATTENTION, how="seek", step=1, name="weights")
    header, payload = desk.answer(
        "table",
        {
            **ATTENTION,
            "name": "weights",
            "step": 1,
            "fixed": [0],
            "rows": [0, 1],
            "columns": [1, 3],
        },
    )
    assert header["size"] == [1, 2]
    assert header["columns"] == ["<BOS>", "lily"]
    assert struct.unpack("<2f", payload) == pytest.approx(
        [0.4611196219921112, 0.25964343547821045], abs=1e-6
    )


def test_explain_one_cell(desk: Desk):
    """The step of one weight, published: old, gradient, new."""
    result(desk, "move", **MLP, how="seek", step=2)
    name = "update.vocab_head.weight"
    found = result(desk, "explain", **MLP, name=name, step=1, cell=[9, 0])
    assert found["value"] == pytest.approx(-0.02271692082285881, abs=1e-6)
    assert found["total"] == pytest.approx(-0.02271692082285881, abs=1e-6)
    old, learned = found["terms"]
    assert (old["source"], old["step"], old["index"]) == ("parameters.vocab_head.weight", 0, [9, 0])
    assert old["value"] == figure(-0.021635789424180984)
    assert (learned["source"], learned["step"]) == ("gradients.vocab_head.weight", 1)
    assert learned["value"] == pytest.approx(0.010811314918100834, abs=1e-6)
    assert learned["contribution"] == pytest.approx(-0.1 * 0.010811314918100834, abs=1e-7)
    assert found["count"] == 2


# --- mistakes --------------------------------------------------------------------------------

HERE = {**MLP, "name": "hidden", "step": 1}
VIEW = {"fixed": [], "rows": [0, 1], "columns": [0, 1]}


@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        ("fly", {}, "the worker does not know how to 'fly'"),
        ("", {}, "the worker does not know how to ''"),
        ("__init__", {}, "the worker does not know how to"),
        ("look", {"map": "sideways", "model": "mlp"}, "there is no sideways map"),
        ("look", {"map": "training", "model": "rnn"}, "no model is called 'rnn'"),
        ("look", {**MLP, "name": "nothing", "step": 1}, "'nothing'"),
        ("look", {**MLP, "name": "logits", "step": 99}, "there is no step 99 yet"),
        ("look", {**MLP, "name": "logits", "step": -1}, "there is no step -1"),
        ("move", {**MLP, "how": "up"}, "there is no way 'up' to move"),
        ("move", {**MLP, "how": "seek", "step": -2}, "there is no step -2"),
        ("move", {**MLP, "how": "seek", "step": 1, "name": "nothing"}, "is called 'nothing'"),
        ("move", {**MLP, "how": "seek", "step": 0, "name": "logits"}, "is called 'logits'"),
        ("move", {**GENERATION, "how": "seek", "step": 99}, "there is no step 99"),
        ("explain", {**HERE, "cell": [0, 8]}, "hidden has no cell [0, 8]"),
        ("explain", {**HERE, "cell": []}, "its shape is [2, 8]"),
        ("explain", {**HERE, "cell": [-1, 0]}, "hidden has no cell [-1, 0]"),
        ("explain", {**MLP, "name": "nothing", "step": 1, "cell": []}, "'nothing'"),
        ("table", {**MLP, **VIEW, "name": "nothing", "step": 0}, "'nothing'"),
    ],
)
def test_what_cannot_be_answered(desk: Desk, method: str, params: dict[str, Any], words: str):
    result(desk, "move", **MLP, how="seek", step=1, name="hidden")
    told = error(desk, method, **params)
    assert words in told["sentence"]
    assert told["exit_code"] == 2
    assert "trace" not in told
    assert place(result(desk, "look", **MLP)) == (1, "hidden")  # nothing has moved


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("look", {}),
        ("look", {"map": "training"}),
        ("look", {**MLP, "colour": "red"}),
        ("open", {"options": None}),
        ("open", {"options": {"context": "four"}}),
        ("table", {**HERE, **VIEW, "rows": [0]}),
        ("explain", {**HERE, "cell": None}),
        ("losses", [1, 2]),
        ("losses", None),
    ],
)
def test_requests_no_screen_of_ours_sends(desk: Desk, method: str, params: Any):
    """A failure with its trace, and the desk goes on answering."""
    result(desk, "move", **MLP, how="seek", step=1, name="hidden")
    reply, payload = reply_to(desk.answer, {"id": 7, "method": method, "params": params})
    assert reply["id"] == 7
    assert reply["error"]["sentence"].startswith("the worker failed: ")
    assert reply["error"]["exit_code"] == 1
    assert reply["error"]["trace"].startswith("Traceback")
    assert payload == b""
    assert place(result(desk, "look", **MLP)) == (1, "hidden")


def test_a_request_without_a_method(desk: Desk):
    reply, _ = reply_to(desk.answer, {})
    assert reply["id"] is None
    assert reply["error"]["sentence"] == "the worker does not know how to ''"


def test_seek_tells_of_what_is_nowhere(desk: Desk):
    walk = desk._walk("training", "mlp")
    with pytest.raises(UsageError, match=r"parameters\.nothing"):
        seek(walk, 0, "parameters.nothing")
    assert seek(walk, 0, "parameters.vocab_head.bias").role == "parameter"
    assert seek(walk, 1, "loss") is None


# --- the process -----------------------------------------------------------------------------

REAL = (sys.executable, "-P", "-m", "engine.service.worker")


def worker(patches: str) -> tuple[str, ...]:
    """The worker, with something put in place of one of its methods first."""
    body = f"import engine.service.worker as worker\n{patches}\nworker.main()"
    return (sys.executable, "-P", "-c", body)


@contextmanager
def process(command: tuple[str, ...]) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as started:
        try:
            yield started
        finally:
            started.kill()


def send(started: subprocess.Popen[bytes], method: str, **params: Any) -> None:
    assert started.stdin is not None
    started.stdin.write(encode({"id": 1, "method": method, "params": params}))
    started.stdin.flush()


def received(started: subprocess.Popen[bytes]) -> tuple[dict[str, Any], bytes]:
    assert started.stdout is not None
    found = read_frame(started.stdout)
    assert found is not None
    return found


def test_nothing_but_frames_on_its_output():
    """Whatever prints, and however: it comes on standard error."""
    noisy = """
import os, sys
def noise(method, params):
    print("printed")
    sys.stdout.flush()
    os.write(1, b"written\\n")
    os.system("echo by a child")
    return {"read": sys.stdin.read()}
worker.Desk.answer = lambda desk, method, params: noise(method, params)
"""
    with process(worker(noisy)) as started:
        for _ in range(2):
            send(started, "anything")
            assert received(started) == ({"id": 1, "result": {"read": ""}}, b"")
        rest, said = started.communicate(timeout=30)
    assert rest == b""
    assert said.decode().split("\n") == ["printed", "written", "by a child"] * 2 + [""]
    assert started.returncode == 0


def test_it_ends_with_its_input_even_in_the_middle_of_a_computation():
    endless = """
import sys, threading
def forever(desk, method, params):
    print("computing", file=sys.stderr, flush=True)
    threading.Event().wait()
worker.Desk.answer = forever
"""
    with process(worker(endless)) as started:
        send(started, "look")
        assert started.stderr is not None
        assert started.stdin is not None
        assert started.stderr.readline() == b"computing\n"
        started.stdin.close()
        assert started.wait(timeout=30) == 0


def test_it_ends_with_its_input_before_anything_was_asked():
    with process(REAL) as started:
        assert started.stdin is not None
        started.stdin.close()
        assert started.wait(timeout=30) == 0
        assert (started.stdout.read(), started.stderr.read()) == (b"", b"")


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", encode({"id": 1})[:-1], b"\0"])
def test_a_broken_frame(sent: bytes):
    with process(REAL) as started:
        rest, said = started.communicate(sent, timeout=30)
    assert started.returncode == 1
    assert rest == b""
    assert said.startswith(b"tensorstep's worker was sent a broken frame: ")
    assert said.count(b"\n") == 1


def test_nobody_reads_its_answers():
    quick = "worker.Desk.answer = lambda desk, method, params: {}"
    with process(worker(quick)) as started:
        assert started.stdout is not None
        started.stdout.close()
        send(started, "look")
        assert started.wait(timeout=30) == 0
        assert started.stderr is not None
        assert started.stderr.read() == b""


def test_an_interrupt_is_the_screens_to_answer():
    quick = "worker.Desk.answer = lambda desk, method, params: {'method': method}"
    with process(worker(quick)) as started:
        send(started, "one")
        assert received(started)[0]["result"] == {"method": "one"}
        started.send_signal(signal.SIGINT)
        send(started, "two")
        assert received(started)[0]["result"] == {"method": "two"}


def test_the_real_worker_answers_what_a_desk_answers(desk: Desk):
    """The numbers of another process, bit for bit, requests sent without waiting."""
    moves = [
        ("open", {"options": Options().to_json()}),
        ("move", {**ATTENTION, "how": "seek", "step": 2, "name": "weights"}),
        ("dump", {**ATTENTION, "max_values": 100}),
        ("table", {**ATTENTION, **VIEW, "name": "K", "step": 1, "fixed": [1], "columns": [0, 3]}),
        ("explain", {**ATTENTION, "name": "weights", "step": 1, "cell": [0, 0, 2]}),
        ("nothing", {}),
        ("losses", ATTENTION),
    ]
    with process(REAL) as started:
        for method, params in moves:
            send(started, method, **params)
        for method, params in moves:
            reply, payload = reply_to(desk.answer, {"id": 1, "method": method, "params": params})
            header, cells = received(started)
            if method == "open":
                assert header["result"].pop("pid") == started.pid
                reply["result"].pop("pid")
            assert header == json.loads(json.dumps(reply))
            assert cells == payload


def test_starting_imports_no_torch():
    """Before the first request that needs it, so that the worker is there at once."""
    body = "import sys, engine.service.worker; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", body], capture_output=True, check=True, text=True)
    assert ran.stdout == "False\n"


def test_errors_are_sentences(desk: Desk):
    """TensorstepError of any kind keeps its exit code."""

    def failing(method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise TensorstepError("it did not work", 1)

    desk.answer = failing  # type: ignore[method-assign]
    reply, _ = reply_to(desk.answer, {"id": 3, "method": "look"})
    assert reply == {"id": 3, "error": {"sentence": "it did not work", "exit_code": 1}}


def test_requests_wait_in_line():
    quick = "worker.Desk.answer = lambda desk, method, params: {'method': method}"
    with process(worker(quick)) as started:
        for number in range(100):
            send(started, f"m{number}")
        answers = [received(started)[0]["result"]["method"] for _ in range(100)]
    assert answers == [f"m{number}" for number in range(100)]
