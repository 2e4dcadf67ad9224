#!/usr/bin/env python3
"""What shows only in numbers: a thousand last lines, hundreds of cancelled submits, daemons after thousands of jobs.

Usage: soak.py BIN [-v] [Case[.test]]. Too long for every change; scripts/soak.sh runs it.
"""

import concurrent.futures
import json
import os
import pathlib
import random
import re
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))

from programs import BIN, Up, eventually  # noqa: E402

SCALE = float(os.environ.get("GPULAYER_SOAK_SCALE", "1"))


def count(whole: int) -> int:
    return max(1, int(whole * SCALE))


def daemons(data: pathlib.Path) -> "dict[str, int]":
    """Pids of the server, the worker and its gpulayer-exec, by name."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            name = pathlib.Path(os.readlink(process / "exe")).name
            ours = str(data).encode() in (process / "cmdline").read_bytes() or os.readlink(process / "cwd") == str(data)
        except OSError:
            continue
        if ours and name.startswith("gpulayer-"):
            pid = int(process.name)
            parent = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if name != "gpulayer-exec" or parent == 1 or parent not in found.values():
                found.setdefault(name, pid)
    return found


def usage(pid: int) -> "dict[str, int]":
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": len(os.listdir(f"/proc/{pid}/task")),
            "rss_kib": int(re.search(r"VmRSS:\s+(\d+)", status)[1])}


class Soak(Up):
    def at_once(self, work, many: int, threads: int = 4) -> list:
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, range(many)))

    def test_every_last_line_arrives(self) -> None:
        program = r"printf 'x\nlast-without-newline'"
        expected = b"x\nlast-without-newline"

        def attached(_: int) -> bytes:
            return self.gpulayer("submit", "--shell", program).stdout

        def detached(_: int) -> bytes:
            job = self.gpulayer("submit", "-d", "--shell", program).stdout.decode().strip()
            return self.gpulayer("logs", "-f", job).stdout

        for way in (attached, detached):
            wrong = [said for said in self.at_once(way, count(1000)) if said != expected]
            self.assertEqual(wrong, [], way.__name__)

    def test_nothing_starts_after_a_cancel_and_nothing_is_left(self) -> None:
        started = self.home.path / "started"
        started.mkdir()
        program = f'date +%s%N > "{started}/$GPULAYER_JOB_ID"; exec sleep 600'

        def race(i: int) -> "tuple[str, int]":
            job = self.gpulayer("submit", "-d", "--grace", "1s", "--shell", program).stdout.decode().strip()
            time.sleep(random.Random(i).uniform(0, 0.06))
            self.gpulayer("cancel", job)
            return job, time.time_ns()

        for job, acknowledged in self.at_once(race, count(500)):
            self.gpulayer("job", "wait", job, code=130)
            mark = started / job
            if mark.exists() and mark.read_text():
                self.assertLess(int(mark.read_text()), acknowledged, f"job {job} began after its cancel")
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes()
                name = (process / "comm").read_text().strip()
            except OSError:
                continue
            self.assertFalse(name == "sleep" and str(self.home.path).encode() in environment, process)
        # Its slots are free: a job that wants all of them runs.
        self.gpulayer("submit", "--slots", "4", "--", "true")

    def test_daemons_are_the_same_after_many_jobs(self) -> None:
        data = self.home.path / "data"

        def some(many: int) -> None:
            jobs = self.at_once(lambda _: self.gpulayer("submit", "-d", "--", "true").stdout.decode().strip(), many)
            for at in range(0, len(jobs), 500):
                self.gpulayer("job", "wait", *jobs[at:at + 500])

        some(count(500))
        pids = daemons(data)
        self.assertEqual(sorted(pids), ["gpulayer-exec", "gpulayer-server", "gpulayer-worker"])
        before = {name: usage(pid) for name, pid in pids.items()}
        some(count(5000))
        self.assertEqual(daemons(data), pids, "none was restarted")
        for name, pid in pids.items():
            after = usage(pid)
            print(name, json.dumps({"before": before[name], "after": after}), file=sys.stderr)
            self.assertLessEqual(after["descriptors"], before[name]["descriptors"] + 16, name)
            self.assertLessEqual(after["threads"], before[name]["threads"] + 8, name)
            self.assertLessEqual(after["rss_kib"], before[name]["rss_kib"] + 32 * 1024, name)
        children = [p for p in pathlib.Path("/proc").glob("[0-9]*/stat") if self.is_zombie_of(p, set(pids.values()))]
        self.assertEqual(children, [])

        def only_spares(folder: pathlib.Path) -> bool:
            names = [p.name for p in (data / folder).iterdir()] if (data / folder).is_dir() else []
            return all(name.startswith(".") for name in names)

        for kind in ("work", "attempts"):
            folder = pathlib.Path("worker", kind, "v1")
            eventually(lambda folder=folder: only_spares(folder), f"{folder} is swept")

    @staticmethod
    def is_zombie_of(stat: pathlib.Path, parents: "set[int]") -> bool:
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            return False
        return fields[0] == "Z" and int(fields[1]) in parents


if __name__ == "__main__":
    print(f"soak: programs of {BIN}", file=sys.stderr)
    unittest.main(verbosity=2)
