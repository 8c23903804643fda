"""Models from the hub: what is fetched, kept, and told. A small hub of the test's own answers on
this machine, to a process of its own; nothing here reaches the network."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.engine.checkpoint_files import LLAMA, VOCAB, write, write_shards, write_tokenizer

REVISION = "b" * 40
ROOT = Path(__file__).resolve().parents[2]
LOADED = """
import json, sys
from engine.errors import TensorstepError
from engine.models.pretrained import load_pretrained
told = []
try:
    found = load_pretrained(sys.argv[1], tell=lambda *of: told.append(of))
    size = len(found.tokenizer) if found.tokenizer else 0
    print(json.dumps({"folder": str(found.folder), "size": size, "told": told}))
except TensorstepError as error:
    print(json.dumps({"error": str(error), "told": told}))
"""


class Hub:
    """Answers as the hub does, with the files of one model, `somebody/small`."""

    def __init__(self, folder: Path):
        self.files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        self.asked: list[str] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Answer(BaseHTTPRequestHandler):
            def log_message(self, *of: Any) -> None:
                pass

            def do_HEAD(self) -> None:
                self.send(*hub.answer(self.path), body=False)

            def do_GET(self) -> None:
                hub.asked.append(self.path)
                self.send(*hub.answer(self.path))

            def send(self, code: int, content: bytes, headers: dict, body: bool = True) -> None:
                self.send_response(code)
                for key, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(key, value)
                self.end_headers()
                if body:
                    self.wfile.write(content)

        return Answer

    def answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        path = path.partition("?")[0]
        model = "/api/models/somebody/small"
        if path in (model, f"{model}/revision/main", f"{model}/revision/{REVISION}"):
            files = [{"rfilename": name} for name in self.files]
            about = {"_id": "1", "id": "somebody/small", "sha": REVISION, "siblings": files}
            return 200, json.dumps(about).encode(), {"Content-Type": "application/json"}
        if path.startswith(f"{model}/tree/"):
            tree = [{"type": "file", "path": name, "size": len(content), "oid": tag(content)}
                    for name, content in self.files.items()]  # fmt: skip
            return 200, json.dumps(tree).encode(), {"Content-Type": "application/json"}
        name = path.partition("/resolve/")[2].partition("/")[2]
        if path.startswith("/somebody/small/resolve/") and name in self.files:
            content = self.files[name]
            return 200, content, {"ETag": f'"{tag(content)}"', "X-Repo-Commit": REVISION}
        if path.startswith(model):
            return 404, b"", {"X-Error-Code": "RevisionNotFound"}
        if "locked" in path:
            return 403, b"", {"X-Error-Code": "GatedRepo"}
        return 404, b"", {"X-Error-Code": "RepoNotFound"}

    def fetched(self) -> set[str]:
        """The names of the files that were asked for."""
        found = (path.partition("/resolve/")[2].partition("/")[2] for path in self.asked)
        return {name for name in found if name}


def tag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:40]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = write_shards(tmp_path / "model", LLAMA)
    write_tokenizer(folder, VOCAB)
    for unwanted in ("pytorch_model.bin", "README.md", "onnx/model.safetensors", "run.py"):
        (folder / unwanted).parent.mkdir(exist_ok=True)
        (folder / unwanted).write_bytes(b"never to be fetched")
    made = Hub(folder)
    yield made
    made.server.shutdown()
    made.server.server_close()


def load(where: str, home: Path, hub: Hub | None, **env: str) -> dict[str, Any]:
    """What loading gives, in a process with a cache of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    address = "http://127.0.0.1:9" if hub is None else hub.address  # 9: nobody answers
    made = subprocess.run(
        [sys.executable, "-P", "-c", LOADED, where],
        capture_output=True,
        text=True,
        env={**kept, "PYTHONPATH": str(ROOT), "HF_ENDPOINT": address, "HF_HOME": str(home), **env},
        timeout=120,
        check=True,
    )
    assert made.stderr == ""  # no bars
    found: dict[str, Any] = json.loads(made.stdout)
    return found


@pytest.mark.slow
def test_fetched_once_and_kept(hub: Hub, tmp_path: Path):
    home = tmp_path / "home"
    first = load("somebody/small", home, hub)
    assert Path(first["folder"]).parts[-3:] == ("models--somebody--small", "snapshots", REVISION)
    assert Path(first["folder"]).is_relative_to(home)
    assert first["size"] == VOCAB + 1  # and <PAD>
    shards = {f"model-{i:05d}-of-00003.safetensors" for i in (1, 2, 3)}
    wanted = {"config.json", "tokenizer.json", "model.safetensors.index.json", *shards}
    assert hub.fetched() == wanted
    assert first["told"][0] == ["asking the hub for somebody/small", 0, None]
    assert "fetching somebody/small (MB)" in {what for what, _, _ in first["told"]}
    hub.asked.clear()
    assert load("somebody/small", home, hub)["folder"] == first["folder"]
    assert hub.fetched() == set()
    for gone in (load("somebody/small", home, None),
                 load(f"somebody/small@{REVISION}", home, hub, HF_HUB_OFFLINE="1")):  # fmt: skip
        assert gone["folder"] == first["folder"]
        assert gone["told"][0] == ["looking for somebody/small", 0, None]


@pytest.mark.slow
def test_what_the_hub_does_not_give(hub: Hub, tmp_path: Path):
    for where, sentence in (
        ("somebody/none", "'somebody/none' is neither a folder here nor a model of the hub"),
        ("somebody/locked", "'somebody/locked' is locked"),
        ("somebody/small@v9", "'somebody/small' has no revision 'v9'"),
    ):
        told = load(where, tmp_path / "home", hub)["error"]
        assert told.startswith(sentence), told
        assert "\n" not in told


def test_nothing_kept_and_nobody_answers(tmp_path: Path):
    told = load("somebody/small", tmp_path / "home", None)["error"]
    assert told.startswith("'somebody/small' is no folder here, the hub cannot be reached")


def test_a_folder_here_goes_first(hub: Hub, tmp_path: Path):
    write(tmp_path / "somebody" / "small", LLAMA)
    where = str(tmp_path / "somebody" / "small")
    assert load(where, tmp_path / "home", hub)["folder"] == where
    assert hub.asked == []
