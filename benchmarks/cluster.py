"""A server and a worker of a benchmark's own: free port, scratch folder, a login over loopback TLS; all gone at the end."""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))

import common  # noqa: E402

GIB = 1 << 30


def progress(text: str) -> None:
    print(f"{pathlib.Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)


class Cluster:
    """A server and a worker started by `gpulayer up` below `root`, used through a login over TLS."""

    def __init__(self, binaries: pathlib.Path, root: pathlib.Path) -> None:
        self.root = root
        self.binaries = binaries
        self.env = {**os.environ, "GPULAYER_DATA_DIR": str(root / "data"), "GPULAYER_CONFIG_DIR": str(root / "config"),
                    "PATH": f"{binaries}:{os.environ['PATH']}"}
        for name in ("GPULAYER_TARGET", "GPULAYER_TOKEN"):
            self.env.pop(name, None)
        port = common.free_port()
        said = self.run("up", "--listen", f"127.0.0.1:{port}").stdout
        try:
            login = re.search(r"login\s+(\S+)\s+--token\s+(\S+)", said)
            token = login[2] if login else self.run("token", "create", "--role", "client").stdout.split()[-1]
            self.run("login", f"127.0.0.1:{port}", "--token", "-", "--name", "bench", stdin=token)
        except BaseException:
            self.down()
            raise

    def run(self, *words: str, stdin: str = "", cwd: pathlib.Path | None = None) -> subprocess.CompletedProcess[str]:
        """One `gpulayer` command; its error text ends this script."""
        done = subprocess.run(["gpulayer", *words], env=self.env, input=stdin, text=True, capture_output=True,
                              cwd=cwd or self.root, check=False, timeout=600)
        if done.returncode != 0:
            raise SystemExit(f"gpulayer {' '.join(words[:3])} ended with {done.returncode}: {done.stderr.strip()}")
        return done

    def timed(self, *words: str) -> tuple[float, str]:
        start = time.monotonic()
        done = self.run(*words)
        return time.monotonic() - start, done.stdout

    def blobs(self) -> dict[str, int]:
        """Every file of the server's blob store with its size."""
        return {str(p): p.stat().st_size for p in (self.root / "data").glob("**/blobs/v1/??/*")}

    def processes(self) -> dict[str, list[int]]:
        """Pids of our daemons, by program name."""
        found: dict[str, list[int]] = {}
        mark = f"{self.root}/".encode()
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not entry.name.isdigit() or not os.readlink(entry / "exe").startswith(str(self.binaries)):
                    continue
                if mark in (entry / "cmdline").read_bytes() or mark in (entry / "environ").read_bytes():
                    found.setdefault(pathlib.Path(os.readlink(entry / "exe")).name, []).append(int(entry.name))
        return found

    def down(self) -> None:
        subprocess.run(["gpulayer", "down"], env=self.env, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)


@contextlib.contextmanager
def cluster(args: argparse.Namespace) -> Iterator[Cluster]:
    root = pathlib.Path(tempfile.mkdtemp(prefix="gpulayer-bench-", dir=args.scratch))
    started = None
    try:
        started = Cluster(args.bin, root)
        yield started
    finally:
        if started:
            started.down()
        shutil.rmtree(root, ignore_errors=True)


def arguments(doc: str) -> argparse.ArgumentParser:
    """A parser with what every benchmark of ours takes."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent / "build/release/bin")
    parser.add_argument("--scratch", help="where the scratch folder is made; its disk is what is measured")
    return parser


def run(parser: argparse.ArgumentParser, parts: dict) -> int:
    """Parses, says on what machine this is, and runs the parts that --only names."""
    parser.add_argument("--only", default=",".join(parts))
    args = parser.parse_args()
    args.bin = args.bin.resolve()
    if not (args.bin / "gpulayer").is_file():
        parser.error(f"no gpulayer in {args.bin}: run scripts/build.sh")
    wanted = args.only.split(",")
    if unknown := set(wanted) - set(parts):
        parser.error(f"--only knows {', '.join(parts)}, not {', '.join(sorted(unknown))}")
    version = subprocess.run([args.bin / "gpulayer", "version"], text=True, capture_output=True, check=False).stdout.strip()
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], text=True, capture_output=True, check=False)
    common.emit("setup", gpulayer=version, commit=commit.stdout.strip(), memory_gib=round(
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 1), **common.versions())
    for name in wanted:
        progress(name)
        parts[name](args)
    return 0
