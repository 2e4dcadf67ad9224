#!/usr/bin/env python3
"""What a single job costs: submit to exit, the way of the first byte, many small submits at once, a cancel.

Starts a server and a worker of its own (free port, scratch folder), logs in to it over loopback TLS, and stops both at the
end. One JSON object per line on stdout, progress on stderr. The machine should have nothing else to do.

Usage: one_job.py [--only attached,byte,tiny,cancel] [--bin build/release/bin] [--scratch DIR] [--repeat 50]
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))

import common  # noqa: E402
from cluster import arguments, cluster, run  # noqa: E402

# Prints the time before each line, so that a reader on the same machine knows how long it was under way.
TELL_TIME = """
import sys, time
for _ in range(int(sys.argv[1])):
    time.sleep(0.05)
    print(time.time_ns(), flush=True)
"""


def spawn_time(argv: list, env: dict) -> float:
    """From the spawn of a process to its exit; its output is thrown away."""
    start = time.monotonic()
    pid = os.posix_spawnp(argv[0], argv, env, file_actions=[
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    took = time.monotonic() - start
    if code != 0:
        raise SystemExit(f"{' '.join(argv)} ended with {code}")
    return took


def attached(args: argparse.Namespace) -> None:
    """`submit -- true` attached, from exec to exit. The floor: a verb that asks the same server one question."""
    with cluster(args) as c:
        program = str(args.bin / "gpulayer")
        submit = [program, "submit", "--target", "bench", "--", "true"]
        status = [program, "status", "--target", "bench"]
        for _ in range(5):
            spawn_time(submit, c.env)
        took, floor = [], []
        for _ in range(args.repeat):  # by turns, so that both meet the same machine
            took.append(spawn_time(submit, c.env))
            floor.append(spawn_time(status, c.env))
        common.emit("attached", submit_true=common.latency(took), status_question=common.latency(floor))


def first_byte(args: argparse.Namespace) -> None:
    """From a program's write to the same bytes on the standard output of the attached submit."""
    with cluster(args) as c:
        script = c.root / "tell.py"
        script.write_text(TELL_TIME)
        run_it = subprocess.Popen([args.bin / "gpulayer", "submit", "--target", "bench", "--no-source", "--", sys.executable, "-u",
                                   str(script), str(args.repeat)], env=c.env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        ways = []
        for line in run_it.stdout:
            ways.append((time.time_ns() - int(line)) / 1e9)
        if run_it.wait() != 0 or len(ways) != args.repeat:
            raise SystemExit(f"submit ended with {run_it.returncode} after {len(ways)} lines")
        common.emit("first_byte", way=common.latency(ways), first_ms=round(ways[0] * 1e3, 3))


def client_bench(args: argparse.Namespace, c, *words: str) -> dict:
    done = subprocess.run([args.bin / "gpulayer_one_job_bench", "bench", *words], env=c.env, text=True, capture_output=True,
                          check=False, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"gpulayer_one_job_bench: {done.stderr.strip()}")
    return json.loads(done.stdout)


def tiny(args: argparse.Namespace) -> None:
    """2,000 times `true`, a request each, many outstanding, until every result is known."""
    with cluster(args) as c:
        client_bench(args, c, "tiny", "200", "32")
        runs = [client_bench(args, c, "tiny", "2000", "64") for _ in range(3)]
        common.emit("tiny", jobs=2000, jobs_per_s=common.stats([r["jobs_per_s"] for r in runs], 1),
                    submits_per_s=common.stats([r["submits_per_s"] for r in runs], 1))


def cancel(args: argparse.Namespace) -> None:
    """A program that ends on SIGTERM: from the cancel to the slot's next program, one after another."""
    with cluster(args) as c:
        result = client_bench(args, c, "cancel", str(min(args.repeat, 30)))
        common.emit("cancel", to_slot_free=common.latency(result["seconds"]))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--repeat", type=int, default=50)
    return run(parser, {"attached": attached, "byte": first_byte, "tiny": tiny, "cancel": cancel})


if __name__ == "__main__":
    sys.exit(main())
