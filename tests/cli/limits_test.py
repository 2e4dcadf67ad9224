#!/usr/bin/env python3
"""What a job may write, leave and use: --log-limit, --keep, --memory; and that no byte of its output is lost."""

import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import unittest

from programs import CLI, Home, PATIENCE, Up, eventually

LIMIT = 64 << 10
HOG = "dd if=/dev/zero of=/dev/null bs=200M count=1 2>/dev/null"
MIB = 1 << 20


def numbers(last: int) -> bytes:
    return b"".join(b"%d\n" % n for n in range(1, last + 1))


def processes(name: str, data_dir: pathlib.Path) -> "list[int]":
    """Those of that program that work in or below a folder."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.path.basename(words[0]) == name.encode() and any(w.startswith(bytes(data_dir)) for w in words[1:]):
            found.append(int(process.name))
    return found


def peak_bytes(pid: int) -> int:
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    assert found
    return int(found.group(1)) * 1024


class Logs(Up):
    """Output over its limit: its beginning and its end."""

    def check_ends(self, out: bytes, err: bytes, whole: bytes) -> int:
        found = re.search(rb"(?m)^gpulayer: dropped (\d+) bytes of output here \(--log-limit 64KiB\)$", err)
        assert found, err
        dropped = int(found.group(1))
        self.assertEqual(len(out) + dropped, len(whole))
        head = os.path.commonprefix([out, whole])
        tail = out[len(head):]
        self.assertGreater(len(head), LIMIT // 4)
        self.assertGreater(len(tail), LIMIT // 5)
        self.assertTrue(whole.endswith(tail))
        self.assertEqual(whole[len(whole) - len(tail) - 1:len(whole) - len(tail)], b"\n", "a line's beginning")
        return dropped

    def test_head_and_tail_are_kept_attached_and_stored(self) -> None:
        whole = numbers(300_000)
        done = self.gpulayer("submit", "--name", "long", "--log-limit", "64KiB", "--", "seq", "300000")
        dropped = self.check_ends(done.stdout, done.stderr, whole)
        job = json.loads(self.gpulayer("job", "list", "--name", "long", "--json").stdout)["items"][0]
        self.assertEqual(job["request"]["log_limit_bytes"], LIMIT)
        for words in (["job", "logs", str(job["id"])], ["logs", "-f", str(job["id"])],
                      ["job", "attach", str(job["id"])]):
            again = self.gpulayer(*words)
            self.assertEqual(self.check_ends(again.stdout, again.stderr, whole), dropped)
            self.assertNotIn(b"half of the output's limit", again.stderr)
        show = json.loads(self.gpulayer("job", "show", str(job["id"]), "--json").stdout)
        self.assertLess(show["tasks"][0]["attempts"][0]["log_bytes"], LIMIT + 1024)
        self.assertEqual(self.gpulayer("job", "logs", "--tail", "2", str(job["id"])).stdout, b"299999\n300000\n")
        retried = self.gpulayer("job", "retry", str(job["id"])).stdout.decode().strip()
        self.gpulayer("job", "wait", retried)
        again = self.gpulayer("job", "logs", retried)
        self.check_ends(again.stdout, again.stderr, whole)

    def test_a_task_among_others_says_it_too(self) -> None:
        done = self.gpulayer("submit", "--log-limit", "64KiB", "--array", "0-1", "--all-logs", "--", "seq", "100000")
        self.assertEqual(len(re.findall(rb"(?m)^gpulayer: \d+\.[01]: dropped \d+ bytes of output here", done.stderr)), 2)

    def test_a_limit_that_is_too_small_is_wrong_usage(self) -> None:
        done = self.gpulayer("submit", "--log-limit", "10KiB", "--", "true", code=2)
        self.assertIn(b"--log-limit: at least 64KiB", done.stderr)

    def test_who_follows_is_told_and_a_killed_worker_costs_nothing(self) -> None:
        go = self.home.path / "go"
        script = f"seq 300000; while ! [ -e {go} ]; do sleep 0.02; done; echo end"
        client = self.home.start("submit", "--log-limit", "64KiB", "--shell", script)
        assert client.stderr
        said = b""
        while b"half of the output's limit (--log-limit) is used" not in said:
            line = client.stderr.readline()
            self.assertTrue(line, said)
            said += line
        kept = self.home.path / "data" / "worker" / "attempts" / "v1"
        eventually(lambda: any(b"300000\n" in p.read_bytes() for p in kept.glob("*/tail?")), "the tail is written")
        worker, = processes("gpulayer-worker", self.home.path)
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: worker not in processes("gpulayer-worker", self.home.path), "the worker's death")
        self.gpulayer("up")
        go.touch()
        out, err = client.communicate(timeout=PATIENCE)
        self.assertEqual(client.returncode, 0, err)
        self.check_ends(out, err, numbers(300_000) + b"end\n")

    def test_the_last_line_arrives_without_a_line_end(self) -> None:
        jobs = []
        for _ in range(50):
            done = self.gpulayer("submit", "--no-outputs", "--", "printf", "x\\nlast-without-newline")
            self.assertEqual(done.stdout, b"x\nlast-without-newline")
            jobs.append(self.gpulayer("submit", "-d", "--no-outputs", "--", "printf",
                                      "x\\nlast-without-newline").stdout.decode().strip())
        self.gpulayer("job", "wait", *jobs)
        for job in jobs:
            self.assertEqual(self.gpulayer("logs", job).stdout, b"x\nlast-without-newline")

    def test_a_long_line_and_a_big_log_come_back_and_nobody_holds_them(self) -> None:
        size = 40_000_000
        daemons = [pid for name in ("gpulayer-server", "gpulayer-worker", "gpulayer-exec")
                   for pid in processes(name, self.home.path)]
        self.assertGreaterEqual(len(daemons), 3)
        before = {pid: peak_bytes(pid) for pid in daemons}
        line = f"head -c {size} /dev/zero | tr '\\0' x"
        lines = f"yes 0123456789012345678901234567890123456789012345678901234567890 | head -c {size}"
        for script in (line, lines):
            expected = hashlib.sha256(subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout)
            client = subprocess.Popen([CLI, "submit", "--no-outputs", "--shell", script], cwd=self.home.cwd,
                                      env=self.home.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            assert client.stdout
            got = hashlib.sha256()
            while piece := client.stdout.read(1 << 20):
                got.update(piece)
            client.stdout.close()
            _, status, usage = os.wait4(client.pid, 0)
            client.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(client.returncode, 0)
            self.assertEqual(got.hexdigest(), expected.hexdigest())
            self.assertLess(usage.ru_maxrss * 1024, 64 * MIB + 40 * MIB, "the client: its program and 64 MiB")
        for pid in daemons:
            self.assertLess(peak_bytes(pid) - before[pid], 64 * MIB)


    def test_a_terminal_shows_what_it_shows_of_a_local_program(self) -> None:
        script = "for i in 10 50 100; do printf '\\r%3d%% \\033[32m#\\033[0m' $i; done; printf '\\n\\200\\377\\nbye\\n'"
        raw = subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout
        local = self.on_a_terminal(["sh", "-c", script])
        self.assertEqual(local, raw.replace(b"\n", b"\r\n"), "as the terminal has it")
        shown = self.on_a_terminal([CLI, "submit", "--no-outputs", "--shell", script])
        self.assertEqual(shown, local.replace(b"\x80\xff", "\ufffd\ufffd".encode()), "marks for what is no text")
        self.assertEqual(self.gpulayer("submit", "--no-outputs", "--shell", script).stdout, raw, "into a pipe")

    def on_a_terminal(self, words: "list[str]") -> bytes:
        ours, theirs = os.openpty()
        with subprocess.Popen(words, cwd=self.home.cwd, env=self.home.env, stdin=subprocess.DEVNULL, stdout=theirs,
                              stderr=subprocess.PIPE) as program:
            os.close(theirs)
            shown = b""
            while True:
                try:
                    piece = os.read(ours, 65536)
                except OSError:  # the other end is closed
                    break
                if not piece:
                    break
                shown += piece
            os.close(ours)
            assert program.stderr
            self.assertEqual((program.wait(PATIENCE), program.stderr.read()), (0, b""))
        return shown


class Causes(Up):
    """Ways to end, each with words of its own; memory is below."""

    def test_each_is_said_as_itself(self) -> None:
        (self.home.cwd / "plain").write_text("no program")
        for words, code, cause, own, signal_number, text in (
            (["--", "sh", "-c", "exit 137"], 137, "program", 137, None, b"exit: +137"),
            (["--", "sh", "-c", "exit 124"], 124, "program", 124, None, b"exit: +124"),
            (["--", "sh", "-c", "kill -9 $$"], 137, "signal", None, 9, b"cause: +signal: killed by SIGKILL"),
            (["--", "sh", "-c", "kill -SEGV $$"], 139, "signal", None, 11, b"cause: +signal: killed by SIGSEGV"),
            (["--", "no-such-program"], 127, "not_found", 127, None, b"cause: +not_found: program not found"),
            (["--source", ".", "--", "./plain"], 126, "not_executable", 126, None,
             b"cause: +not_executable: program cannot be executed"),
            (["--time", "100ms", "--", "sleep", "60"], 124, "time_limit", None, 15, b"cause: +time_limit: time limit reached"),
        ):
            with self.subTest(words=words):
                job = self.gpulayer("submit", "-d", "--no-outputs", *words).stdout.decode().strip()
                self.gpulayer("job", "wait", job, code=code)
                shown = json.loads(self.gpulayer("job", "show", job, "--json").stdout)
                self.assertEqual((shown["cause"], shown["exit_code"], shown["signal"]), (cause, own, signal_number))
                self.assertRegex(self.gpulayer("job", "show", job).stdout, text)


class Keep(Up):
    """Work folders of failures."""

    def show(self, job: str) -> dict:
        return json.loads(self.gpulayer("job", "show", job, "--json").stdout)

    def kept(self, job: str) -> "pathlib.Path | None":
        folder = self.show(job)["tasks"][0]["attempts"][0]["kept_folder"]
        return pathlib.Path(folder) if folder else None

    def submit(self, *args: str, code: int = 0) -> "tuple[str, bytes]":
        job = self.gpulayer("submit", "-d", "--keep", *args).stdout.decode().strip()
        done = self.gpulayer("job", "attach", job, code=code)
        return job, done.stderr

    def test_a_failure_leaves_its_folder_and_says_where(self) -> None:
        source = self.home.path / "source"
        source.mkdir()
        (source / "given").write_text("g")
        script = "echo made > made; echo out > $GPULAYER_OUTPUT_DIR/out; head -c 9000000 /dev/zero > big; exit 3"
        job, said = self.submit("--source", str(source), "--shell", script, code=3)
        folder = self.kept(job)
        assert folder
        line = b"work folder of %s.0#1 kept on " % job.encode()
        self.assertRegex(said, rb"(?m)^gpulayer: " + line + rb".*: " + bytes(folder) + rb"$")
        self.assertIn(line, self.gpulayer("job", "show", job).stdout)
        self.assertTrue(self.show(job)["request"]["keep"])
        self.assertEqual({p.name for p in (folder / "work").iterdir()}, {"given", "made", "big"})
        self.assertEqual((folder / "out" / "out").read_text(), "out\n")
        self.assertEqual((folder / "work" / "big").stat().st_size, 9_000_000)
        self.assertEqual((self.home.cwd / "gpulayer_runs" / job / "big").stat().st_size, 9_000_000)
        # Neither another job nor another life of the worker takes it.
        self.gpulayer("submit", "--shell", "echo other > made")
        self.gpulayer("down")
        self.gpulayer("up")
        self.gpulayer("submit", "--", "true")
        self.assertEqual((folder / "work" / "made").read_text(), "made\n")
        again = self.gpulayer("job", "retry", job).stdout.decode().strip()
        self.gpulayer("job", "wait", again, code=3)
        self.assertNotEqual(self.kept(again), folder)
        self.assertEqual((self.kept(again) / "work" / "made").read_text(), "made\n")

    def test_what_is_kept_and_what_is_not(self) -> None:
        for args, code, stays in ((["--", "true"], 0, False),
                                  (["--", "no-such-program"], 127, True),
                                  (["--", "sh", "-c", "kill -9 $$"], 137, True),
                                  (["--no-outputs", "--", "sh", "-c", "exit 4"], 4, True),
                                  (["--time", "100ms", "--", "sleep", "60"], 124, True)):
            job, said = self.submit(*args, code=code)
            folder = self.kept(job)
            self.assertEqual(bool(folder and (folder / "work").is_dir()), stays, (args, folder))
            self.assertEqual(b"kept on" in said, stays, args)
        job = self.gpulayer("submit", "-d", "--keep", "--", "sleep", "60").stdout.decode().strip()
        eventually(lambda: self.show(job)["state"] == "running", "its start")
        self.gpulayer("cancel", job)
        self.gpulayer("job", "wait", job, code=130)
        self.assertIsNone(self.kept(job))
        job = self.gpulayer("submit", "-d", "--", "false").stdout.decode().strip()
        self.gpulayer("job", "wait", job, code=1)
        self.assertIsNone(self.kept(job), "nobody asked")

    def test_there_is_a_bound(self) -> None:
        done = self.gpulayer("submit", "--keep", "--array", "0-24", "--", "false", code=1)
        self.assertEqual(len(re.findall(rb"(?m)^gpulayer: work folder of \d+\.\d+#1 kept on ", done.stderr)), 10)
        self.assertIn(b"and 15 more: `gpulayer job show", done.stderr)
        kept = self.home.path / "data" / "worker" / "kept"
        eventually(lambda: len(list(kept.iterdir())) == 20, "the oldest are gone")
        log, = (self.home.path / "data").glob("**/worker.log")
        self.assertRegex(log.read_bytes(), rb"deleted \S+/kept/\S+, kept by --keep: there are newer ones")


class Local(unittest.TestCase):
    def test_a_local_run_keeps_its_folder_where_it_says(self) -> None:
        home = Home()
        self.addCleanup(home.close)
        temporary = home.path / "tmp"
        temporary.mkdir()
        done = home.run("run", "--keep", "--shell", "echo made > made; exit 5",
                        env=home.env | {"TMPDIR": str(temporary)})
        self.assertEqual(done.returncode, 5, done)
        found = re.search(rb"(?m)^gpulayer: work folder of 1\.0#1 kept on \S+: (\S+)$", done.stderr)
        assert found, done
        folder = pathlib.Path(os.fsdecode(found.group(1)))
        self.assertEqual((folder / "work" / "made").read_text(), "made\n")
        self.assertEqual([p.name for p in temporary.iterdir()], [f"gpulayer-kept-{os.geteuid()}"])


class Memory(Up):
    """--memory as a limit."""

    def setUp(self) -> None:
        why_not = json.loads(self.gpulayer("resources", "detect", "--json").stdout)["no_memory_limit"]
        if why_not:
            self.skipTest("--memory is no limit here: " + why_not)

    def test_out_of_memory_is_a_cause_of_its_own(self) -> None:
        done = self.gpulayer("submit", "--name", "hog", "--memory", "64MiB", "--shell", "exec " + HOG, code=137)
        self.assertIn(b"failed: out of memory: it reached the limit of --memory 64MiB", done.stderr)
        listed = json.loads(self.gpulayer("job", "list", "--name", "hog", "--json").stdout)["items"][0]
        self.assertEqual((listed["cause"], listed["signal"], listed["exit_code"]), ("out_of_memory", 9, None))
        self.assertRegex(self.gpulayer("job", "show", str(listed["id"])).stdout, rb"cause: +out_of_memory: out of memory")

    def test_a_program_that_goes_on_ends_by_itself(self) -> None:
        done = self.gpulayer("submit", "--name", "goes-on", "--memory", "64MiB", "--shell", HOG + "; exit 3", code=3)
        self.assertNotIn(b"failed: out of memory", done.stderr)
        listed = json.loads(self.gpulayer("job", "list", "--name", "goes-on", "--json").stdout)["items"][0]
        self.assertEqual((listed["cause"], listed["exit_code"]), ("program", 3))

    def test_a_worker_that_is_killed_meanwhile_says_it_too(self) -> None:
        go = self.home.path / "go"
        job = self.gpulayer("submit", "-d", "--memory", "64MiB", "--shell",
                            f"while ! [ -e {go} ]; do sleep 0.02; done; exec {HOG}").stdout.decode().strip()
        eventually(lambda: json.loads(self.gpulayer("job", "show", job, "--json").stdout)["state"] == "running", "start")
        worker, = processes("gpulayer-worker", self.home.path)
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: worker not in processes("gpulayer-worker", self.home.path), "the worker's death")
        self.gpulayer("up")
        go.touch()
        self.gpulayer("job", "wait", job, code=137)
        self.assertEqual(json.loads(self.gpulayer("job", "show", job, "--json").stdout)["cause"], "out_of_memory")


if __name__ == "__main__":
    unittest.main(verbosity=2)
