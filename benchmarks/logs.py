#!/usr/bin/env python3
"""Logs: that no last line is missing, and what a big log costs those it passes through.

Usage: logs.py [BIN] [--runs N]. `--runs`: jobs of each kind whose last line has no end (default 1000, about four minutes).
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
LAST = b"x\nlast-without-newline"
LINE = "head -c 400000000 /dev/zero | tr '\\0' x"
LINES = "yes 012345678901234567890123456789012345678901234567890123456789 | head -c 300000000"
DAEMONS = ("gpulayer-server", "gpulayer-worker", "gpulayer-exec")


def say(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


def daemons(data_dir: str) -> "dict[str, int]":
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        name = os.path.basename(words[0]).decode(errors="replace")
        if name in DAEMONS and any(w.startswith(data_dir.encode()) for w in words[1:]):
            found[name] = int(process.name)
    return found


def peak(pid: int) -> int:
    return int(re.findall(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())[0]) * 1024


def last_lines(run, runs: int) -> bool:
    """Attached, and detached with `job logs` behind it."""
    bad = 0
    begin = time.monotonic()
    for _ in range(runs):
        bad += run("submit", "--no-outputs", "--", "printf", LAST.decode()).stdout != LAST
    say(what="last line, attached", runs=runs, missing=bad, seconds=round(time.monotonic() - begin, 1))
    begin = time.monotonic()
    jobs = [run("submit", "-d", "--no-outputs", "--", "printf", LAST.decode()).stdout.decode().strip() for _ in range(runs)]
    for at in range(0, runs, 100):
        run("job", "wait", *jobs[at:at + 100])
    bad_detached = sum(run("logs", job).stdout != LAST for job in jobs)
    say(what="last line, detached", runs=runs, missing=bad_detached, seconds=round(time.monotonic() - begin, 1))
    return bad + bad_detached == 0


def big_log(cli: str, env: dict, cwd: str, data_dir: str, what: str, script: str) -> bool:
    # The floor: the same bytes through one pipe.
    begin = time.monotonic()
    expected = hashlib.sha256()
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as plain:
        size = 0
        while piece := plain.stdout.read(MIB):
            expected.update(piece)
            size += len(piece)
    floor = time.monotonic() - begin
    pids = daemons(data_dir)
    before = {name: peak(pid) for name, pid in pids.items()}
    got = hashlib.sha256()
    begin = time.monotonic()
    client = subprocess.Popen([cli, "submit", "--no-outputs", "--shell", script], cwd=cwd, env=env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    while piece := client.stdout.read(MIB):
        got.update(piece)
    _, status, usage = os.wait4(client.pid, 0)
    client.returncode = os.waitstatus_to_exitcode(status)
    grown = {name: round((peak(pid) - before[name]) / MIB, 1) for name, pid in pids.items()}
    same = client.returncode == 0 and got.digest() == expected.digest()
    say(what=what, bytes=size, same=same, seconds=round(time.monotonic() - begin, 2), floor_seconds=round(floor, 2),
        grown_mib=grown, client_peak_mib=round(usage.ru_maxrss / 1024, 1))
    return same and all(mib < 64 for mib in grown.values()) and usage.ru_maxrss * 1024 < 104 * MIB


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin", nargs="?", default="build/release/bin")
    parser.add_argument("--runs", type=int, default=1000)
    args = parser.parse_args()
    cli = str(pathlib.Path(args.bin).resolve() / "gpulayer")
    with tempfile.TemporaryDirectory(prefix="gpulayer-logs-") as root:
        data_dir = os.path.join(root, "data")
        env = {k: v for k, v in os.environ.items() if not k.startswith("GPULAYER_")}
        env |= {"GPULAYER_DATA_DIR": data_dir, "GPULAYER_CONFIG_DIR": os.path.join(root, "config")}

        def run(*words: str) -> "subprocess.CompletedProcess[bytes]":
            return subprocess.run([cli, *words], cwd=root, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=True)

        run("up", "--listen", "127.0.0.1:0")
        try:
            good = big_log(cli, env, root, data_dir, "a line of 400 MB", LINE)
            good = big_log(cli, env, root, data_dir, "a log of 300 MB", LINES) and good
            good = last_lines(run, args.runs) and good
        finally:
            run("down")
    if not good:
        print("logs.py: not as it should be", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
