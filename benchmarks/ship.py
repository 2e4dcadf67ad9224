#!/usr/bin/env python3
"""Shipping a source and bringing outputs home, and what idle daemons cost; every figure beside its floor of the same run.

Starts a server and a worker of its own (free port, scratch folder), logs in to it over loopback TLS, and stops both at the
end. One JSON object per line on stdout, progress on stderr. The machine should have nothing else to do.

Usage: ship.py [--only idle,small,big] [--bin build/release/bin] [--scratch DIR] [--idle-seconds 60]
"""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))

import common  # noqa: E402
from cluster import GIB, Cluster, arguments, cluster, progress, run  # noqa: E402


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return round(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024, 1)


def idle(args: argparse.Namespace) -> None:
    """CPU and memory of freshly started daemons with nothing to do."""
    with cluster(args) as c:
        time.sleep(3)  # what a start does is over
        before = {(name, pid): cpu_seconds(pid) for name, pids in c.processes().items() for pid in pids}
        progress(f"idle for {args.idle_seconds} s: {before}")
        time.sleep(args.idle_seconds)
        for (name, pid), cpu in before.items():
            common.emit("idle", process=name, seconds=args.idle_seconds, rss_mib=rss_mib(pid),
                        core_percent=round((cpu_seconds(pid) - cpu) / args.idle_seconds * 100, 3))


def small_files(args: argparse.Namespace) -> None:
    """Many files of 1 KiB: first submit, the same again, and once more after one edit."""
    with cluster(args) as c:
        source = c.root / "source"
        for i in range(args.files):
            folder = source / f"d{i // 100:03}"
            if i % 100 == 0:
                folder.mkdir(parents=True)
            (folder / f"f{i:05}.bin").write_bytes(os.urandom(1024))
        os.sync()
        time.sleep(2.5)  # what changed in the last two seconds is hashed again by design
        submit = ("submit", "--target", "bench", "--detach", "--source", str(source), "--no-outputs", "--", "true")
        # The floor: the same bytes copied file by file and made durable once.
        start = time.monotonic()
        shutil.copytree(source, c.root / "copy")
        os.sync()
        floor = time.monotonic() - start
        first, job = c.timed(*submit)
        c.run("job", "wait", job.strip(), "--target", "bench")
        again = []
        for _ in range(args.repeat):
            took, job = c.timed(*submit)
            again.append(took)
            # Laying out 10,000 files for the job would compete with the next submit for the processors.
            c.run("job", "wait", job.strip(), "--target", "bench")
        known = c.blobs()
        (source / "d000" / "f00000.bin").write_bytes(os.urandom(1024))
        edited, _ = c.timed(*submit)
        new = [size for path, size in c.blobs().items() if path not in known]
        common.emit("small_files", files=args.files, first_s=round(first, 3), copy_and_sync_s=round(floor, 3),
                    first_to_copy=round(first / floor, 2), resubmit_s=common.stats(again, 4), edited_s=round(edited, 4),
                    new_content_blobs=sum(size == 1024 for size in new), new_blobs=len(new), new_bytes=sum(new))


# Touches 3 GiB of memory and gives it back. A virtual machine's host takes free pages back within seconds and gives them
# again at the next touch: 1.5 s a GiB on the machine of 2026-12-01, three times what copying the GiB takes. Each copy, ours
# and the floor's, begins right after this, or the floor's second copy is compared with our first.
TOUCH_MEMORY = (f"import mmap; mmap.mmap(-1, {3 * GIB}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()")


def touch_memory() -> None:
    subprocess.run([sys.executable, "-c", TOUCH_MEMORY], check=True)


def copy_and_fsync(source: pathlib.Path, target: pathlib.Path) -> float:
    touch_memory()
    start = time.monotonic()
    subprocess.run(["cp", source, target], check=True)
    with open(target, "rb+") as f:
        os.fsync(f.fileno())
    took = time.monotonic() - start
    target.unlink()
    return took


def just_written_copy_and_fsync(size: int, root: pathlib.Path) -> float:
    """copy_and_fsync of a file in the state a program leaves its output in: just written, not yet on the disk."""
    written = root / "written.bin"
    os.sync()
    subprocess.run(f"head -c {size} /dev/urandom > {written}", shell=True, check=True)
    took = copy_and_fsync(written, root / "copy.bin")
    written.unlink()
    return took


def big_file(args: argparse.Namespace) -> None:
    """One big file up as source, and as big a one home as output, beside cp + fsync of the same bytes."""
    for target, over in (("bench", "TLS"), ("here", "the server's socket")):
        with cluster(args) as c:
            one_big_file(args, c, target, over)


def one_big_file(args: argparse.Namespace, c: Cluster, target: str, over: str) -> None:
    source = c.root / "source"
    source.mkdir()
    size = args.big_bytes
    with open(source / "big.bin", "wb") as f:
        for _ in range(size >> 20):
            f.write(os.urandom(1 << 20))
        f.flush()
        os.fsync(f.fileno())
    time.sleep(2.5)
    floor = [copy_and_fsync(source / "big.bin", c.root / "copy.bin") for _ in range(3)]
    touch_memory()
    up, job = c.timed("submit", "--target", target, "--detach", "--source", str(source), "--source-limit", "4GiB",
                      "--no-outputs", "--", "true")
    c.run("job", "wait", job.strip(), "--target", target)
    # Other bytes than the source's, or nothing would have to travel; made before the clock starts: the program's last
    # line is the time of its end.
    program = (f'head -c {size} /dev/urandom > "$GPULAYER_OUTPUT_DIR/big.bin" && '
               f"{sys.executable} -c '{TOUCH_MEMORY}' && date +%s.%N")
    done = c.run("submit", "--target", target, "--shell", program)
    home = time.time() - float(done.stdout.strip().splitlines()[-1])
    came = sum(p.stat().st_size for p in (c.root / "gpulayer_runs").glob("*/big.bin"))
    if came != size:
        raise SystemExit(f"{came} bytes of {size} came home")
    floor += [copy_and_fsync(source / "big.bin", c.root / "copy.bin") for _ in range(2)]
    just_written = [just_written_copy_and_fsync(size, c.root) for _ in range(3)]
    median = statistics.median(floor)

    def rate(seconds: float) -> float:
        return round(size / seconds / 1e6, 1)

    common.emit("big_file", over=over, bytes=size, up_s=round(up, 3), up_mb_s=rate(up), home_s=round(home, 3),
                home_mb_s=rate(home), copy_fsync_s=common.stats(floor, 3), copy_fsync_mb_s=rate(median),
                up_to_copy_rate=round(median / up, 2), home_to_copy_rate=round(median / home, 2),
                just_written_copy_fsync_s=common.stats(just_written, 3),
                home_to_just_written_copy_rate=round(statistics.median(just_written) / home, 2))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--big-bytes", type=int, default=GIB)
    parser.add_argument("--idle-seconds", type=int, default=60)
    return run(parser, {"idle": idle, "small": small_files, "big": big_file})


if __name__ == "__main__":
    sys.exit(main())
