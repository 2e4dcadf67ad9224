#!/usr/bin/env python3
"""Checks who may include whom: the layers of docs/design/overview.md.

Usage: layers.py [ROOT]. Prints one line per include that crosses a layer and exits 1 if there is any.
"""

import dataclasses
import pathlib
import re
import sys

# What a room may include of ours, besides itself. `public` is include/gpulayer. A room that is not here is an error: who
# adds a room says what it may see.
ROOMS: dict[str, set[str]] = {
    "public": set(),
    "base": {"public"},
    "model": {"base", "public"},
    "wire": {"model", "base", "public"},
    "tree": {"model", "base", "public"},
    "server/core": {"model", "base"},
    "server/store": {"model", "base"},
    "server/blob": {"model", "base"},
    "server": {"server/core", "server/store", "server/blob", "model", "base"},  # engine.*
    "server/security": {"server/store", "model", "base"},
    "server/rpc": {"server", "server/security", "server/core", "server/store", "server/blob", "tree", "wire", "model",
                   "base", "public"},
    "worker/agent": {"model", "base"},
    "worker/probe": {"model", "base"},
    "worker/exec": {"model", "base"},
    "worker/logs": {"worker/exec", "model", "base"},
    "worker/cache": {"tree", "model", "base"},
    "worker/session": {"worker/agent", "worker/probe", "worker/exec", "worker/logs", "worker/cache", "tree", "wire",
                       "model", "base", "public"},
    "worker": {"worker/session", "worker/agent", "worker/probe", "worker/exec", "worker/logs", "worker/cache", "tree",
               "wire", "model", "base", "public"},  # worker.*
    "client": {"wire", "tree", "model", "base", "public"},
    "cli": {"public"},
}
# Programs put rooms together: what they may see on top of their room's list.
MAINS: dict[str, set[str]] = {
    "src/cli/main.cc": {"base"},  # heap.h, which is compiled in: what else is in base is hidden in the client library
    "src/cli/thread.h": {"base"},
    "src/server/server.cc": {"server/rpc", "server/security"},
    "src/server/main.cc": {"server/rpc", "worker", "worker/session", "worker/probe", "worker/exec", "worker/logs", "worker/cache",
                           "worker/agent", "wire", "public"},
    "src/worker/main.cc": set(ROOMS) - {"cli", "client"},
}


@dataclasses.dataclass(frozen=True)
class Outside:
    """A library of others: which includes are its own, and who may use it how."""

    name: str
    pattern: str
    rooms: set[str] | None = None  # None: every room
    in_headers: bool = True
    files_at_most: int | None = None  # of src/: how many files may include it


OUTSIDE = [
    Outside("gRPC", r"grpc(pp)?/|.*\.grpc\.pb\.h$", {"server/rpc", "worker/session", "client"}),
    Outside("protobuf", r"google/protobuf/|.*\.pb\.h$", {"wire", "server/rpc", "worker/session", "client"}),
    Outside("abseil", r"absl/", {"worker/session"}, in_headers=False, files_at_most=1),
    Outside("CLI11", r"CLI/", {"cli"}, files_at_most=1),
    Outside("spdlog", r"spdlog/", in_headers=False),
    Outside("nlohmann-json", r"nlohmann/", in_headers=False),
    Outside("toml++", r"toml\+\+/", in_headers=False),
    Outside("SQLite", r"sqlite3\.h$", {"server/store"}),
    Outside("libgit2", r"git2(\.h$|/)", {"tree"}),
    Outside("libtorch", r"(torch|c10|ATen)/", {"trainer"}),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def room_of(path: str) -> str | None:
    """The room of a file (`src/server/core/core.h` -> `server/core`); None if it lies in none."""
    if path.startswith("include/gpulayer/"):
        return "public"
    if not path.startswith("src/"):
        return None
    folder = path[len("src/"):].rpartition("/")[0]
    while folder and folder not in ROOMS:
        folder = folder.rpartition("/")[0]
    return folder or None


def violations(root: pathlib.Path) -> list[str]:
    """One line `file:line: what is wrong` for each include that crosses a layer."""
    found: list[str] = []
    users: dict[str, list[str]] = {}
    files = sorted(p for top in ("src", "include") for p in root.glob(f"{top}/**/*") if p.suffix in (".h", ".cc"))
    for file in files:
        path = file.relative_to(root).as_posix()
        room = room_of(path)
        if room is None and path not in MAINS:
            found.append(f"{path}:1: lies in no known room: add it to ROOMS in scripts/layers.py")
            continue
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                problem = _problem(path, room, match[1] or match[2], users)
                if problem:
                    found.append(f"{path}:{number}: {problem}")
    for library in OUTSIDE:
        seen = sorted(set(users.get(library.name, [])))
        if library.files_at_most is not None and len(seen) > library.files_at_most:
            found.append(f"{seen[-1]}:1: {library.name} belongs into {library.files_at_most} file, it is in {', '.join(seen)}")
    return found


def _problem(path: str, room: str | None, include: str, users: dict[str, list[str]]) -> str | None:
    for library in OUTSIDE:
        if not re.match(library.pattern, include):
            continue
        users.setdefault(library.name, []).append(path)
        if library.rooms is not None and room not in library.rooms:
            return f"{include}: {library.name} is not for {room}, only for {', '.join(sorted(library.rooms)) or 'nobody'}"
        if not library.in_headers and path.endswith(".h"):
            return f"{include}: {library.name} costs seconds a file, include it in .cc files only"
        return None
    target = room_of("include/" + include) or room_of("src/" + include)
    if target is None or target == room:
        return None
    allowed = ROOMS.get(room or "", set()) | MAINS.get(path, set())
    if target in allowed:
        return None
    return f"{include}: {room} may not see {target}, only {', '.join(sorted(allowed)) or 'itself'}"


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    found = violations(root)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
