#!/usr/bin/env python3
"""The command line with real programs: one server and worker for most cases, in a folder of its own.

Usage: cli_test.py BIN_DIR [unittest arguments].
"""

import json
import os
import pathlib
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
CLI = str(BIN / "gpulayer")
PATIENCE = 60


class Home:
    """A user's own folders, and the environment that points to them."""

    def __init__(self) -> None:
        self.temporary = tempfile.TemporaryDirectory(prefix="gpulayer-cli-")
        self.path = pathlib.Path(self.temporary.name)
        self.cwd = self.path / "cwd"
        self.cwd.mkdir()
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("GPULAYER_")}
        self.env |= {
            "GPULAYER_DATA_DIR": str(self.path / "data"),
            "GPULAYER_CONFIG_DIR": str(self.path / "config"),
            "XDG_CACHE_HOME": str(self.path / "cache"),
        }

    def run(self, *args: "str | bytes", **kwargs: object) -> "subprocess.CompletedProcess[bytes]":
        options: dict = {"cwd": self.cwd, "env": self.env, "stdin": subprocess.DEVNULL, "timeout": PATIENCE}
        options |= kwargs
        return subprocess.run([CLI, *args], capture_output=True, **options)

    def start(self, *args: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([CLI, *args], cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def close(self) -> None:
        self.run("down")
        self.temporary.cleanup()


def eventually(condition, what: str):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not in time: {what}")


class SlowRelay:
    """Passes bytes on to a server, each piece so much later, in both directions."""

    def __init__(self, to: "tuple[str, int]", delay: float) -> None:
        self.to = to
        self.delay = delay
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.sockets: "list[socket.socket]" = []

    def __enter__(self) -> "SlowRelay":
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for s in (self.listener, *self.sockets):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()

    def serve(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(self.to)
            self.sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                pieces: "queue.Queue[tuple[float, bytes]]" = queue.Queue()
                threading.Thread(target=self.read, args=(source, pieces), daemon=True).start()
                threading.Thread(target=self.write, args=(sink, pieces), daemon=True).start()

    def read(self, source: socket.socket, pieces: "queue.Queue[tuple[float, bytes]]") -> None:
        data = b"x"
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            pieces.put((time.monotonic() + self.delay, data))

    @staticmethod
    def write(sink: socket.socket, pieces: "queue.Queue[tuple[float, bytes]]") -> None:
        try:
            while True:
                due, data = pieces.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    return sink.shutdown(socket.SHUT_WR)
                sink.sendall(data)
        except OSError:
            pass


class Up(unittest.TestCase):
    """Shares one `up` among the cases."""

    home: Home
    up: str

    @classmethod
    def setUpClass(cls) -> None:
        cls.home = Home()
        done = cls.home.run("up", "--listen", "127.0.0.1:0", "--slots", "4")
        assert done.returncode == 0, done
        cls.up = done.stdout.decode()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.home.close()

    def gpulayer(self, *args: "str | bytes", code: int = 0, **kwargs: object) -> "subprocess.CompletedProcess[bytes]":
        done = self.home.run(*args, **kwargs)
        self.assertEqual(done.returncode, code, done)
        return done

    def address(self) -> str:
        return json.loads(self.gpulayer("status", "--target", "here", "--json").stdout)["addresses"][0]

    def token(self, role: str, *args: str) -> str:
        return self.gpulayer("token", "create", "--role", role, *args).stdout.decode().strip()


class Submit(Up):
    def test_exit_code_and_streams(self) -> None:
        done = self.gpulayer("submit", "--", "sh", "-c", "echo out; echo err >&2; exit 7", code=7)
        self.assertEqual(done.stdout, b"out\n")
        self.assertEqual(done.stderr, b"err\n")
        self.gpulayer("submit", "--", "no-such-program", code=127)
        self.gpulayer("submit", "--", "/etc/passwd", code=126)
        self.gpulayer("submit", "--", "sh", "-c", "kill -9 $$", code=137)
        self.gpulayer("submit", "--time", "1s", "--grace", "0s", "--", "sleep", "60", code=124)

    def test_f42_arguments_arrive_byte_for_byte(self) -> None:
        words = [b"a b", b"c'd", b"$HOME", b"*", b"x;y", b"", b"n\nl", b"\x80\xff", b"[a,b]", b"--json", b"--", b"{}"]
        program = "import os,sys; sys.stdout.buffer.write(b'\\0'.join(os.fsencode(a) for a in sys.argv[1:]))"
        done = self.gpulayer("submit", "--", "python3", "-c", program, *words)
        self.assertEqual(done.stdout, b"\0".join(words))
        done = self.gpulayer("submit", *[b"--env=V%d=%s" % (i, w) for i, w in enumerate(words)], "--", "python3", "-c",
                             "import os,sys; sys.stdout.buffer.write(b'\\0'.join(os.environb[b'V%d' % i]"
                             f" for i in range({len(words)})))")
        self.assertEqual(done.stdout, b"\0".join(words))

    def test_f43_standard_input_ends_at_once_and_ours_is_left_alone(self) -> None:
        self.assertEqual(self.gpulayer("submit", "--", "cat").stdout, b"")
        loop = f"while read l; do {CLI} submit -- echo \"$l\"; done"
        done = subprocess.run(["sh", "-c", loop], input=b"1\n2\n3\n", env=self.home.env, cwd=self.home.cwd,
                              capture_output=True, timeout=PATIENCE)
        self.assertEqual(done.stdout, b"1\n2\n3\n", done)

    def test_a_file_as_standard_input(self) -> None:
        (self.home.cwd / "in").write_bytes(b"a\0b\n")
        self.assertEqual(self.gpulayer("submit", "--stdin", "in", "--", "cat").stdout, b"a\0b\n")

    def test_f38_more_than_a_kernel_starts_is_refused(self) -> None:
        self.assertEqual(self.gpulayer("submit", "--", "printf", "%s", "x" * 131000).stdout, b"x" * 131000)
        (self.home.cwd / "large.env").write_text("".join(f"V{i}=" + "x" * 130000 + "\n" for i in range(20)))
        (self.home.cwd / "value.env").write_text("V=" + "x" * 140000)
        for env in ("large.env", "value.env"):
            for verb in ("submit", "run"):
                done = self.gpulayer(verb, "--env-file", env, "--", "true", code=125)
                self.assertRegex(done.stderr, rb"over the kernel's limit of \d+ bytes")
        self.gpulayer("submit", "--env-file", "absent.env", "--", "true", code=2)
        self.assertIn(b"--stdin: absent: No such file", self.gpulayer("submit", "--stdin", "absent", "--", "true",
                                                                      code=2).stderr)

    def test_impossible_request_is_refused_with_the_reason(self) -> None:
        begin = time.monotonic()
        done = self.gpulayer("submit", "--memory", "900GiB", "--", "true", code=125)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertRegex(done.stderr.decode(), r"gpulayer: no worker can run this: needs .*900GiB")

    def test_a_file_here_and_nothing_shipped(self) -> None:
        (self.home.cwd / "train.py").write_text("print('trained')")
        done = self.gpulayer("submit", "--", "python3", "train.py", code=125)
        self.assertEqual(done.stderr, b"gpulayer: train.py is a file here but nothing is shipped: add `--source .`\n")
        self.assertNotEqual(self.home.run("submit", "--no-source", "--", "python3", "train.py").returncode, 125)
        self.assertEqual(self.gpulayer("submit", "--source", ".", "--", "python3", "train.py").stdout, b"trained\n")

    def test_outputs_come_home_after_failure_too(self) -> None:
        source = self.home.path / "outputs-source"
        source.mkdir()
        (source / "kept").write_text("k")
        done = self.gpulayer("submit", "--source", str(source), "--name", "out", "--", "sh", "-c",
                             "echo made > made; mkdir d; echo 2 > d/two; exit 3", code=3)
        self.assertEqual(done.stdout, b"")
        job = json.loads(self.gpulayer("job", "list", "--name", "out", "--json").stdout)["items"][0]["id"]
        folder = self.home.cwd / "gpulayer_runs" / str(job)
        self.assertEqual((folder / "made").read_text(), "made\n")
        self.assertEqual((folder / "d/two").read_text(), "2\n")
        self.assertFalse((folder / "kept").exists())
        to = self.home.path / "to"
        self.gpulayer("job", "result", str(job), "--to", str(to))
        self.assertEqual((to / "made").read_text(), "made\n")

    def test_detach_wait_logs(self) -> None:
        job = self.gpulayer("submit", "--detach", "--", "printf", "x\\nlast-without-newline").stdout.decode()
        self.assertRegex(job, r"^\d+\n$")
        job = job.strip()
        self.gpulayer("job", "wait", job)
        self.assertEqual(self.gpulayer("job", "logs", job).stdout, b"x\nlast-without-newline")
        self.assertEqual(self.gpulayer("logs", "-f", job).stdout, b"x\nlast-without-newline")
        self.assertEqual(self.gpulayer("logs", "--stderr", job).stdout, b"")
        shown = json.loads(self.gpulayer("job", "show", job, "--json").stdout)
        for field in ("id", "name", "user", "state", "exit_code", "signal", "cause", "source_hash", "request",
                      "created_at", "started_at", "ended_at", "tasks"):
            self.assertIn(field, shown)
        self.assertEqual((shown["state"], shown["exit_code"], shown["signal"]), ("succeeded", 0, None))
        missing = self.gpulayer("job", "logs", "99999", code=1)
        self.assertEqual((missing.stdout, missing.stderr.count(b"`gpulayer job list` shows the jobs")), (b"", 1))
        for verb in ("show", "explain"):
            self.assertIn(b"`gpulayer job list` shows the jobs", self.gpulayer("job", verb, "99999", code=1).stderr)
        self.gpulayer("job", "wait", "99999", code=125)

    def test_request_id_names_one_job(self) -> None:
        jobs = {self.gpulayer("submit", "-d", "--request-id", "once", "--", "true").stdout for _ in range(3)}
        self.assertEqual(len(jobs), 1)
        self.gpulayer("job", "wait", jobs.pop().decode().strip())
        done = self.gpulayer("submit", "-d", "--request-id", "once", "--", "false", code=125)
        self.assertRegex(done.stderr, rb"job \d+ has the request id once and asks for something else")

    def test_a_command_in_one_word_is_noted(self) -> None:
        done = self.gpulayer("submit", "--", "echo hi there", code=127)
        self.assertIn(b"use --shell", done.stderr)

    def test_no_place_for_outputs_is_said_before_the_work(self) -> None:
        cwd = self.home.path / "no-place"
        cwd.mkdir()
        (cwd / "gpulayer_runs").write_text("a file")
        for verb in ("submit", "run"):
            done = self.gpulayer(verb, "--", "touch", str(cwd / "ran"), code=125, cwd=cwd)
            self.assertIn(b"gpulayer_runs is no folder", done.stderr)
            self.assertFalse((cwd / "ran").exists())
        self.gpulayer("submit", "--no-outputs", "--", "true", cwd=cwd)
        self.gpulayer("submit", "-d", "--", "true", cwd=cwd)

    def test_a_place_that_goes_away_meanwhile_loses_nothing(self) -> None:
        cwd = self.home.path / "going"
        cwd.mkdir()
        temporary = self.home.path / "tmp"
        temporary.mkdir()
        take = f"echo made > made; echo x > {cwd}/gpulayer_runs"
        done = self.gpulayer("submit", "--shell", take, code=125, cwd=cwd)
        found = re.search(rb"`gpulayer job result (\d+) --to DIR`", done.stderr)
        assert found, done
        to = self.home.path / "rescued"
        self.gpulayer("job", "result", found.group(1), "--to", str(to), cwd=cwd)
        self.assertEqual((to / "made").read_text(), "made\n")

        (cwd / "gpulayer_runs").unlink()
        done = self.gpulayer("run", "--shell", take, code=125, cwd=cwd,
                             env=self.home.env | {"TMPDIR": str(temporary)})
        found = re.search(rb"the outputs are in (\S+) instead", done.stderr)
        assert found, done
        self.assertEqual((pathlib.Path(os.fsdecode(found.group(1))) / "made").read_text(), "made\n")

    def test_what_was_left_out_is_in_the_text_of_the_result(self) -> None:
        job = self.gpulayer("submit", "-d", "--output-limit", "1KiB", "--shell",
                            "head -c 5000 /dev/zero > big; echo x > small").stdout.decode().strip()
        self.gpulayer("job", "wait", job)
        self.assertRegex(self.gpulayer("job", "result", job).stdout, rb"left out big \(4\.\d+KiB\): .")
        to = self.home.path / "left-out"
        self.assertIn(b"left out big", self.gpulayer("job", "result", job, "--to", str(to)).stdout)
        self.assertEqual([p.name for p in to.iterdir()], ["small"])

    def test_a_result_says_how_many_outputs_and_how_to_get_them(self) -> None:
        job = self.gpulayer("submit", "-d", "--", "sh", "-c", "echo made > made").stdout.decode().strip()
        self.gpulayer("job", "wait", job)
        self.assertIn(b"1 output, 5B: `gpulayer job result %s --download`" % job.encode(),
                      self.gpulayer("job", "result", job).stdout)
        to = self.home.path / "counted"
        self.assertIn(b"1 output, 5B, in %s" % bytes(to), self.gpulayer("job", "result", job, "--to", str(to)).stdout)

    def test_failures_name_their_next_step(self) -> None:
        self.assertIn(b"no-such-program: program not found", self.gpulayer("submit", "--", "no-such-program",
                                                                            code=127).stderr)
        source = self.home.path / "steps"
        source.mkdir()
        (source / "train.sh").write_text("true")
        shipped = ("submit", "--source", str(source), "--")
        self.assertIn(b"write ./train.sh", self.gpulayer(*shipped, "train.sh", code=127).stderr)
        self.assertIn(b"chmod +x", self.gpulayer(*shipped, "./train.sh", code=126).stderr)
        self.assertIn(b"--wait-for-worker", self.gpulayer("submit", "--memory", "900GiB", "--", "true", code=125).stderr)
        self.assertIn(b"a folder that is here", self.gpulayer("submit", "--source", "nosuch", "--", "true",
                                                              code=125).stderr)

    def test_a_job_without_outputs_makes_no_folder(self) -> None:
        job = self.gpulayer("submit", "-d", "--", "true").stdout.decode().strip()
        self.gpulayer("job", "wait", job)
        to = self.home.path / "nothing"
        self.assertIn(b"no outputs", self.gpulayer("job", "result", job, "--to", str(to)).stdout)
        self.assertFalse(to.exists())

    def test_cancel_of_a_task_that_is_not_there(self) -> None:
        job = self.gpulayer("submit", "-d", "--", "true").stdout.decode().strip()
        self.gpulayer("job", "wait", job)
        self.assertIn(b"it has no task 7", self.gpulayer("job", "cancel", job + ".7", code=1).stderr)

    def test_a_cancel_of_several_that_is_refused_says_that_none_was(self) -> None:
        job = self.gpulayer("submit", "-d", "--", "sleep", "600").stdout.decode().strip()
        self.assertIn(b"Nothing was cancelled.", self.gpulayer("job", "cancel", job, "99999", code=1).stderr)
        self.assertNotEqual(json.loads(self.gpulayer("job", "show", job, "--json").stdout)["state"], "cancelled")
        self.gpulayer("job", "cancel", job)

    def test_ctrl_c_cancels_and_says_so(self) -> None:
        client = self.home.start("submit", "--", "sh", "-c", "echo started; exec sleep 600")
        self.assertEqual(client.stdout.readline(), b"started\n")
        client.send_signal(signal.SIGINT)
        _, err = client.communicate(timeout=PATIENCE)
        self.assertEqual(client.returncode, 130, err)
        self.assertIn(b"cancelling job", err)

    def test_a_second_ctrl_c_leaves_while_the_cancel_stands(self) -> None:
        client = self.home.start("submit", "--", "sh", "-c", "trap '' TERM; echo started; sleep 600; sleep 600")
        self.assertEqual(client.stdout.readline(), b"started\n")
        client.send_signal(signal.SIGINT)
        self.assertIn(b"cancelling job", client.stderr.readline())
        # Sooner it would be the same press.
        job = json.loads(self.gpulayer("job", "list", "--limit", "1", "--json").stdout)["items"][0]["id"]
        time.sleep(0.5)
        client.send_signal(signal.SIGINT)
        _, err = client.communicate(timeout=10)
        self.assertEqual(client.returncode, 130, err)
        self.assertIn(b"job attach %d" % job, err)
        self.gpulayer("job", "cancel", "--now", str(job))
        self.gpulayer("job", "wait", str(job), code=130)

    def test_a_ctrl_c_that_comes_several_times_at_once_is_one(self) -> None:
        client = self.home.start("submit", "--", "sh", "-c", "echo started; exec sleep 600")
        self.assertEqual(client.stdout.readline(), b"started\n")
        for _ in range(50):  # what is pending already does not count again
            client.send_signal(signal.SIGINT)
        _, err = client.communicate(timeout=PATIENCE)
        self.assertEqual(client.returncode, 130, err)
        found = re.search(rb"cancelling job (\d+)", err)
        assert found, err
        self.assertNotIn(b"not confirmed", err)
        self.gpulayer("job", "wait", found.group(1).decode(), code=130)

    def test_sigterm_leaves_the_job_running(self) -> None:
        client = self.home.start("submit", "--", "sh", "-c", "echo started; exec sleep 600")
        self.assertEqual(client.stdout.readline(), b"started\n")
        client.send_signal(signal.SIGTERM)
        _, err = client.communicate(timeout=10)
        self.assertEqual(client.returncode, 143, err)
        found = re.search(rb"gpulayer job attach (\d+)", err)
        assert found, err
        job = found.group(1).decode()
        self.assertEqual(json.loads(self.gpulayer("job", "show", job, "--json").stdout)["state"], "running")
        follower = self.home.start("job", "attach", job)
        self.assertEqual(follower.stdout.readline(), b"started\n")
        self.gpulayer("cancel", job)
        follower.communicate(timeout=PATIENCE)
        self.assertEqual(follower.returncode, 130)

    def test_json_holds_bytes_that_are_not_text(self) -> None:
        job = self.gpulayer("submit", "-d", "--", "echo", b"\x80").stdout.decode().strip()
        self.gpulayer("job", "wait", job)
        shown = json.loads(self.gpulayer("job", "show", job, "--json").stdout)
        self.assertEqual(shown["request"]["command"], ["echo", {"$bytes": "gA=="}])
        self.assertEqual(self.gpulayer("logs", job).stdout, b"\x80\n")

    def test_over_the_source_limit(self) -> None:
        source = self.home.path / "big"
        (source / "data").mkdir(parents=True)
        (source / "data" / "x").write_bytes(b"x" * 100_000)
        done = self.gpulayer("submit", "--source", str(source), "--source-limit", "10KiB", "--", "true", code=125)
        self.assertIn(b"data", done.stderr)

    def test_dry_run(self) -> None:
        source = self.home.path / "dry"
        source.mkdir()
        (source / "a").write_bytes(b"12345")
        done = self.gpulayer("submit", "--source", str(source), "--dry-run", "--", "true")
        self.assertEqual(done.stdout, b"5B\ta\n")


class Arrays(Up):
    """Several tasks in one job."""

    def test_numbered_tasks_and_the_code_of_the_lowest_failure(self) -> None:
        done = self.gpulayer("submit", "--array", "5-11:3%1", "--", "sh", "-c",
                             "echo hello from $GPULAYER_TASK; echo $GPULAYER_TASK > n.txt; "
                             "[ $GPULAYER_TASK != 8 ] || exit 3", code=3)
        self.assertEqual(done.stdout, b"")
        said = done.stderr.decode()
        self.assertRegex(said, r"gpulayer: task \d+\.8 failed: exit code 3\n    hello from 8\n")
        self.assertRegex(said, r"gpulayer: job \d+: 3 of 3 done, 1 failed\n")
        job = re.search(r"job (\d+):", said)[1]
        runs = self.home.cwd / "gpulayer_runs" / job
        self.assertEqual({p.name: (p / "n.txt").read_text() for p in runs.iterdir() if p.is_dir()},
                         {"5": "5\n", "8": "8\n", "11": "11\n"})
        self.assertEqual(self.gpulayer("job", "logs", f"{job}.11").stdout, b"hello from 11\n")
        self.gpulayer("job", "logs", "-f", f"{job}.8", code=3)
        self.gpulayer("job", "logs", "-f", f"{job}.5")
        self.assertIn(f"`gpulayer job logs {job}.5`", self.gpulayer("job", "logs", job, code=1).stderr.decode())
        self.assertIn("It has 5 to 11 in steps of 3", self.gpulayer("cancel", f"{job}.6", code=1).stderr.decode())
        shown = json.loads(self.gpulayer("job", "show", job, "--json").stdout)
        self.assertEqual(shown["request"]["array"], {"first": 5, "last": 11, "step": 3})
        self.assertEqual(shown["task_states"], {"succeeded": 2, "failed": 1})

    def test_a_task_for_each_line_byte_for_byte(self) -> None:
        items = [b"a b", b"", b"$HOME `x` 'q' \"d\"", b"\x80\xff", b"*"]
        (self.home.cwd / "items").write_bytes(b"\n".join(items))
        done = self.gpulayer("submit", "--name", "each", "--each", "items", "--all-logs", "--no-outputs", "--", "sh", "-c",
                             'printf "%s|%s\\n" "$1" "$GPULAYER_ITEM"', "sh", "<{}>")
        job = json.loads(self.gpulayer("job", "list", "--name", "each", "--json").stdout)["items"][0]["id"]
        wanted = [b"%d.%d: <%s>|%s" % (job, i, item, item) for i, item in enumerate(items)]
        self.assertEqual(sorted(done.stdout.splitlines()), sorted(wanted))
        tasks = json.loads(self.gpulayer("job", "show", str(job), "--json").stdout)["tasks"]
        self.assertEqual(tasks[0]["item"], "a b")
        self.assertEqual(tasks[3]["item"], {"$bytes": "gP8="})

    def test_lines_from_standard_input(self) -> None:
        done = self.home.run("submit", "--each", "-", "--all-logs", "--", "echo", "{}", stdin=None, input=b"x\ny\n")
        self.assertEqual(sorted(line.split(b": ")[1] for line in done.stdout.splitlines()), [b"x", b"y"], done)

    def test_all_logs_of_both_streams_in_whole_lines(self) -> None:
        done = self.gpulayer("submit", "--array", "0-3", "--all-logs", "--", "sh", "-c",
                             "for i in 1 2 3; do printf a; printf 'b\\n'; echo e >&2; done; printf end")
        for stream, words in ((done.stdout, [b"ab"] * 3 + [b"end"]), (done.stderr, [b"e"] * 3)):
            lines = [line.split(b": ") for line in stream.splitlines()]
            for task in range(4):
                self.assertEqual([word for name, word in lines if name.endswith(b".%d" % task)], words, done)

    def test_all_logs_has_those_before_a_cancelled_one(self) -> None:
        gate = self.home.path / "gate"
        os.mkfifo(gate)
        run = self.home.start("submit", "--name", "gated", "--array", "0-5%1", "--all-logs", "--", "sh", "-c",
                              f"[ $GPULAYER_TASK != 0 ] || cat {gate}; echo ran")
        job = eventually(lambda: json.loads(self.gpulayer("job", "list", "--name", "gated", "--json").stdout)["items"],
                         "the job is there")[0]["id"]
        eventually(lambda: json.loads(self.gpulayer("job", "show", str(job), "--json").stdout)["task_states"].get("running"),
                   "the first task runs")
        self.gpulayer("cancel", f"{job}.4")
        gate.write_text("")
        out = run.communicate(timeout=PATIENCE)[0]
        self.assertEqual(sorted(out.splitlines()), [b"%d.%d: ran" % (job, i) for i in (0, 1, 2, 3, 5)])
        self.assertEqual(run.returncode, 130)

    def test_attach_wait_cancel(self) -> None:
        job = self.gpulayer("submit", "--detach", "--array", "0-99%2", "--", "sleep", "600").stdout.decode().strip()
        eventually(lambda: json.loads(self.gpulayer("job", "show", job, "--json").stdout)["task_states"].get("running") == 2,
                   "two tasks run")
        why = json.loads(self.gpulayer("job", "explain", job, "--json").stdout)["summary"]
        self.assertIn("2 tasks at work", why)
        follower = self.home.start("job", "attach", job)
        self.assertIn("cancelled 1 task", self.gpulayer("cancel", f"{job}.50").stdout.decode())
        self.assertIn("cancelled 99 tasks", self.gpulayer("cancel", "--now", job).stdout.decode())
        self.assertIn(b"100 of 100 done, 100 cancelled", follower.communicate(timeout=PATIENCE)[1])
        self.assertEqual(follower.returncode, 130)
        self.gpulayer("job", "wait", job, code=130)

    def test_retry_of_what_failed_keeps_the_numbers(self) -> None:
        mark = self.home.path / "mended"
        line = f"echo $GPULAYER_TASK; [ $((GPULAYER_TASK % 4)) != 2 ] || [ -e {mark} ]"
        self.gpulayer("submit", "--name", "first", "--array", "2-10:2", "--shell", line, code=1)
        first = json.loads(self.gpulayer("job", "list", "--name", "first", "--json").stdout)["items"][0]["id"]
        mark.touch()
        again = self.gpulayer("job", "retry", "--failed", str(first)).stdout.decode().strip()
        self.gpulayer("job", "wait", again)
        shown = json.loads(self.gpulayer("job", "show", again, "--json").stdout)
        self.assertEqual([task["index"] for task in shown["tasks"]], [2, 6, 10])
        self.assertEqual((shown["retry_of"], shown["task_count"], shown["name"]), (first, 3, "first"))
        self.assertIn(f"nothing of it failed", self.gpulayer("job", "retry", "--failed", again, code=1).stderr.decode())
        self.gpulayer("job", "logs", f"{again}.4", code=1)
        whole = self.gpulayer("job", "retry", str(first)).stdout.decode().strip()
        self.gpulayer("job", "wait", whole)
        self.assertEqual(json.loads(self.gpulayer("job", "show", whole, "--json").stdout)["task_count"], 5)

    def test_retry_of_one_command_with_its_source(self) -> None:
        (self.home.cwd / "src").mkdir()
        (self.home.cwd / "src" / "a").write_text("was")
        self.gpulayer("submit", "--name", "src", "--source", "src", "--", "cat", "a")
        (self.home.cwd / "src" / "a").write_text("edited")
        job = json.loads(self.gpulayer("job", "list", "--name", "src", "--json").stdout)["items"][0]["id"]
        again = self.gpulayer("job", "retry", str(job)).stdout.decode().strip()
        self.assertEqual(self.gpulayer("job", "logs", "-f", again).stdout, b"was")
        self.gpulayer("job", "retry", "99999", code=1)
        waits = self.gpulayer("submit", "--detach", "--", "sleep", "600").stdout.decode().strip()
        self.assertIn("not over yet", self.gpulayer("job", "retry", waits, code=1).stderr.decode())
        self.gpulayer("cancel", "--now", waits)

    def test_what_cannot_be_meant(self) -> None:
        (self.home.cwd / "empty").write_bytes(b"")
        (self.home.cwd / "nul").write_bytes(b"a\0b\n")
        (self.home.cwd / "long").write_bytes(b"x" * 131072 + b"\n")
        for words, said in [
            (["--array", "9-0"], "the last number is below the first"),
            (["--array", "0-x"], "is not FIRST-LAST[:STEP][%MAX]"),
            (["--array", "0-9%0"], "is not FIRST-LAST[:STEP][%MAX]"),
            (["--array", "0-1000000"], "a job has 1 to 1000000"),
            (["--array", "0-1", "--each", "empty"], "give one of them"),
            (["--each", "empty"], "has no line"),
            (["--each", "no-such"], "no-such"),
            (["--each", "nul"], "NUL"),
            (["--each", "/dev/zero"], "256MiB"),
            (["--env-file", "/dev/zero"], "8MiB"),
            (["--all-logs", "--detach", "--array", "0-1"], "give one of them"),
        ]:
            done = self.gpulayer("submit", *words, "--", "echo", "{}", code=2)
            self.assertIn(said, done.stderr.decode(), words)
        done = self.gpulayer("submit", "--each", "long", "--", "echo", "{}", code=125)
        self.assertIn("131071", done.stderr.decode())
        (self.home.cwd / "one").write_bytes(b"a\n")
        done = self.gpulayer("submit", "--each", "one", "--shell", "echo {}", code=2)
        self.assertIn('"$GPULAYER_ITEM"', done.stderr.decode())


class Verbs(Up):
    def worker(self) -> str:
        return json.loads(self.gpulayer("worker", "list", "--json").stdout)["items"][0]["name"]

    def test_tables_and_documents(self) -> None:
        self.gpulayer("submit", "--", "true")
        for verb in (["ps"], ["worker", "list"], ["status"], ["token", "list"], ["target", "list"],
                     ["resources", "detect"], ["version"]):
            self.assertTrue(self.gpulayer(*verb).stdout, verb)
            json.loads(self.gpulayer(*verb, "--json").stdout)
        self.assertEqual(json.loads(self.gpulayer("worker", "list", "--json").stdout)["items"][0]["state"], "online")
        self.assertEqual(json.loads(self.gpulayer("job", "explain", "1", "--json").stdout)["job"], 1)

    def test_an_answer_that_cannot_be_written_is_a_failure(self) -> None:
        for verb, code in ((["status"], 1), (["ps", "--json"], 1), (["submit", "-d", "--", "true"], 125)):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([CLI, *verb], stdout=full, stderr=subprocess.PIPE, env=self.home.env,
                                      cwd=self.home.cwd, timeout=PATIENCE)
            self.assertEqual(done.returncode, code, done)
            self.assertIn(b"standard output: No space left", done.stderr)
        done = subprocess.run(["sh", "-c", f"exec {CLI} status >&-"], stderr=subprocess.PIPE, env=self.home.env,
                              timeout=PATIENCE)
        self.assertEqual(done.returncode, 1, done)

    def test_a_log_that_cannot_be_written_is_a_failure(self) -> None:
        job = self.gpulayer("submit", "-d", "--", "sh", "-c", "echo out; echo out").stdout.decode().strip()
        self.gpulayer("job", "wait", job)
        for verb, code, also in ((["logs", job], 1, b""), (["logs", "--tail", "1", job], 1, b""),
                                 (["logs", "-f", job], 125, b"job %s is over" % job.encode()),
                                 (["job", "attach", job], 125, b"is over"),
                                 (["submit", "--", "sh", "-c", "echo x; sleep 60"], 125, b"goes on"),
                                 (["--help"], 1, b""), (["submit", "--help"], 1, b"")):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([CLI, *verb], stdout=full, stderr=subprocess.PIPE, env=self.home.env,
                                      cwd=self.home.cwd, timeout=PATIENCE)
            self.assertEqual(done.returncode, code, done)
            self.assertIn(b"standard output: No space left", done.stderr)
            self.assertIn(also, done.stderr)
        running = json.loads(self.gpulayer("ps", "--state", "running", "--json").stdout)["items"]
        self.gpulayer("job", "cancel", "--now", *[str(item["id"]) for item in running])
        done = subprocess.run(["sh", "-c", f"exec {CLI} logs {job} >&-"], stderr=subprocess.PIPE, env=self.home.env,
                              timeout=PATIENCE)
        self.assertEqual(done.returncode, 1, done)
        done = subprocess.run(["bash", "-c", f"{CLI} logs {job} | true; echo ${{PIPESTATUS[0]}}"], capture_output=True,
                              env=self.home.env, timeout=PATIENCE)
        self.assertIn(done.stdout, (b"141\n", b"0\n"), done)  # 0: written before the reader went away
        self.assertEqual(done.stderr, b"", done)

    def test_a_second_up_says_it_is_up(self) -> None:
        said = self.gpulayer("up").stdout.decode()
        self.assertIn("was up already", said)
        self.assertIn("Only this machine reaches it (127.0.0.1:", said)
        self.assertNotIn("gpulayer join", said)
        self.gpulayer("up", "--slots", "1", code=2)

    def test_completions_are_sound(self) -> None:
        script = self.gpulayer("completion", "bash").stdout.decode()
        check = script + '\nCOMP_WORDS=(gpulayer job s); COMP_CWORD=2; _gpulayer; echo "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", check], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.stdout, "show\n", done)
        check = script + '\nCOMP_WORDS=(gpulayer submit --mem); COMP_CWORD=2; _gpulayer; echo "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", check], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.stdout, "--memory\n", done)
        here = self.home.path / "completed"
        (here / "some folder").mkdir(parents=True)
        (here / "some-file").touch()
        for words, wanted in (
                ("job list --state r", "running"), ("token create --role ", "client|worker|admin"),
                ("submit --source so", "some folder"), ("submit --env-file so", "some folder|some-file"),
                ("job result 7 --to = so", "some folder"), ("completion z", "zsh"),
                ("submit --target lo", "local"), ("submit --worker ", self.worker()), ("submit --name ", "")):
            typed = [*words.split(" ")]
            check = (script + f"\nCOMP_WORDS=(gpulayer {' '.join(w or repr('') for w in typed)}); "
                     f"COMP_CWORD={len(typed)}; _gpulayer; IFS='|'; echo \"${{COMPREPLY[*]}}\"")
            env = self.home.env | {"PATH": f"{BIN}:{os.environ['PATH']}"}
            done = subprocess.run(["bash", "-c", check], capture_output=True, text=True, timeout=PATIENCE, cwd=here,
                                  env=env)
            self.assertEqual(sorted(done.stdout.strip().split("|")), sorted(wanted.split("|")), (words, done))


class Doors(Up):
    """Who gets in, and what is said to the others."""

    def login(self, token: str, address: "str | None" = None, code: int = 0) -> str:
        begin = time.monotonic()
        done = self.home.run("login", address or self.address(), "--token", "-", input=token.encode() + b"\n",
                             stdin=None)
        self.assertEqual(done.returncode, code, done)
        self.assertLess(time.monotonic() - begin, 10)
        return done.stderr.decode()

    def test_a_login_submits_and_is_forgotten(self) -> None:
        self.login(self.token("client"))
        self.assertEqual(self.gpulayer("submit", "--", "echo", "x").stdout, b"x\n")
        self.gpulayer("token", "create", "--role", "admin", code=1)
        self.gpulayer("logout")
        self.assertIn("admin", self.gpulayer("status").stdout.decode())
        tokens = json.loads(self.gpulayer("token", "list", "--json").stdout)["items"]
        logins = [t for t in tokens if t["kind"] == "credential" and t["role"] == "client"]
        self.assertTrue(logins and all(t["revoked_at"] for t in logins), logins)

    def test_a_login_closes_the_folder_of_logins(self) -> None:
        folder = self.home.path / "config/targets"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        self.login(self.token("client"))
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        self.gpulayer("logout")

    def test_a_login_that_is_revoked_while_a_job_is_followed(self) -> None:
        token = self.token("client")
        self.login(token)
        client = self.home.start("submit", "--", "sh", "-c", "echo started; exec sleep 600")
        self.assertEqual(client.stdout.readline(), b"started\n")
        done = self.gpulayer("token", "revoke", token.split(".")[2], "--target", "here")
        self.assertIn(b"revoked " + token.split(".")[2].encode(), done.stdout)
        _, err = client.communicate(timeout=PATIENCE)
        self.assertEqual(client.returncode, 125, err)
        found = re.search(rb"job (\d+) goes on; follow it with `gpulayer job attach \1` after a new `gpulayer login`", err)
        assert found, err
        self.gpulayer("logout")
        self.gpulayer("job", "cancel", "--now", found.group(1).decode())

    def test_a_link_with_a_second_of_delay_each_way(self) -> None:
        host, port = self.address().rsplit(":", 1)
        with SlowRelay((host, int(port)), 1.0) as relay:
            self.gpulayer("login", relay.address, "--token", self.token("client"))
            try:
                self.assertIn(b"online", self.gpulayer("worker", "list").stdout)
            finally:
                self.gpulayer("logout")

    def test_names_that_no_server_takes(self) -> None:
        for args in (["--name", "a\nb"], ["--name", b"\xff"], ["--name", "x" * 300], ["--zone", "a\nb"],
                     ["--region", "a\x1b"], ["--label", "k=" + "x" * 300]):
            done = self.gpulayer("join", self.address(), "--token", "gl1.nobody", *args, code=2)
            self.assertIn(b"bytes of printable UTF-8", done.stderr)

    def test_a_revoked_token_takes_its_logins_along(self) -> None:
        token = self.token("client")
        self.login(token)
        self.assertEqual(self.gpulayer("submit", "--", "echo", "x").stdout, b"x\n")
        self.gpulayer("token", "revoke", token.split(".")[2], "--target", "here")
        self.assertIn(b"revoked", self.gpulayer("submit", "--", "true", code=125).stderr)
        self.gpulayer("logout")

    def test_a_token_without_end_says_so(self) -> None:
        self.assertIn(b"good until it is revoked", self.gpulayer("token", "create", "--role", "client").stderr)
        self.assertEqual(self.gpulayer("token", "create", "--role", "client", "--expires", "1d").stderr, b"")

    def test_tokens_that_are_no_good(self) -> None:
        good = self.token("client")
        parts = good.split(".")
        self.assertIn("not a token", self.login("rubbish", code=1))
        wrong = self.login(".".join([*parts[:3], "0" * len(parts[3]), parts[4]]), code=1)
        other = self.login(".".join([*parts[:4], "0" * 64]), code=1)
        self.assertIn("not the server that this token was made by", other)
        self.gpulayer("token", "revoke", parts[2])
        revoked = self.login(good, code=1)
        self.assertIn("revoked", revoked)
        short = self.token("client", "--expires", "1ms")
        time.sleep(0.05)
        expired = self.login(short, code=1)
        self.assertIn("expired", expired)
        worker = self.login(self.token("worker"), code=1)
        self.assertIn("worker", worker)
        self.assertEqual(len({wrong, other, revoked, expired, worker}), 5)

    def test_addresses_that_are_no_good(self) -> None:
        token = self.token("client")
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
        self.assertIn("nobody listens", self.login(token, f"127.0.0.1:{port}", code=1))
        with socket.socket() as plain:
            plain.bind(("127.0.0.1", 0))
            plain.listen()

            def answer() -> None:
                connection, _ = plain.accept()
                with connection:
                    connection.recv(100)
                    connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

            thread = threading.Thread(target=answer)
            thread.start()
            self.assertIn("without TLS", self.login(token, f"127.0.0.1:{plain.getsockname()[1]}", code=1))
            thread.join()
        with socket.socket() as full, socket.socket() as first, socket.socket() as second:
            full.bind(("127.0.0.1", 0))
            full.listen(0)  # who comes when the queue is full hears nothing
            for waiting in (first, second):
                waiting.setblocking(False)
                waiting.connect_ex(full.getsockname())
            self.assertIn("does not answer", self.login(token, f"127.0.0.1:{full.getsockname()[1]}", code=1))

    def test_another_server_at_the_address_of_a_login(self) -> None:
        self.login(self.token("client"))
        try:
            other = Home()
            try:
                done = other.run("up", "--listen", "127.0.0.1:0", "--no-worker", "--json")
                self.assertEqual(done.returncode, 0, done)
                address = json.loads(done.stdout)["addresses"][0]
                self.assertIn(b"server only; for a worker too:", other.run("up").stdout)
                file = next((self.home.path / "config/targets").glob("*.json"))
                login = json.loads(file.read_text())
                file.write_text(json.dumps(login | {"address": address}))
                refused = self.gpulayer("submit", "--", "true", code=125)
                self.assertIn(b"not the server this login was made with", refused.stderr)
            finally:
                other.close()
        finally:
            self.gpulayer("logout")

    def test_a_second_machine_joins(self) -> None:
        second = Home()
        try:
            done = second.run("join", self.address(), "--token", self.token("worker"), "--name", "second", "--slots", "9")
            self.assertEqual(done.returncode, 0, done)
            done = self.gpulayer("submit", "--slots", "9", "--", "sh", "-c", "echo $GPULAYER_WORKER")
            self.assertEqual(done.stdout, b"second\n")
            for again in ((), (self.address(), "--slots", "9")):
                done = second.run("join", *again)
                self.assertEqual(done.returncode, 0, done)
                self.assertEqual(done.stdout, f"this machine is already worker second of {self.address()}\n".encode())
            done = second.run("join", self.address(), "--slots", "3")
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(b"already, with other options. Run `gpulayer down` first", done.stderr)
            self.assertIn(b"a worker of", second.run("join", "127.0.0.2:1").stderr)
            # The machine starts anew: its worker is told to go on, and is what it was.
            record = json.loads((second.path / "data/daemons.json").read_text())
            os.kill(record["worker_process"]["pid"], signal.SIGKILL)
            refused = second.run("up", "--listen", "127.0.0.1:0")
            self.assertEqual(refused.returncode, 1, refused)
            self.assertIn(b"`gpulayer join` starts it again", refused.stderr)
            done = second.run("join")
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(done.stdout, f"this machine is worker second of {self.address()}\n".encode())
            self.assertEqual(second.run("down").returncode, 0)
            done = second.run("join", self.address(), "--slots", "11")
            self.assertEqual(done.returncode, 0, done)
            done = self.gpulayer("submit", "--slots", "11", "--", "sh", "-c", "echo $GPULAYER_WORKER")
            self.assertEqual(done.stdout, b"second\n")
            self.assertEqual(second.run("down").returncode, 0)
            workers = json.loads(self.gpulayer("worker", "list", "--json").stdout)["items"]
            first = next(w["name"] for w in workers if w["name"] != "second")
            done = second.run("join", "--name", first)
            self.assertEqual(done.returncode, 0, done)
            self.assertIn(f"another worker that is online is named {first} too".encode(), done.stderr)
            lost = second.run("worker", "list")
            self.assertEqual(lost.returncode, 1, lost)
            self.assertIn(f"a worker of {self.address()}".encode(), lost.stderr)
            for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    text = process.read_bytes()
                except OSError:
                    continue
                self.assertFalse(b"gpulayer-" in text and b"gl1." in text, text)
        finally:
            second.close()


class Alone(unittest.TestCase):
    """Cases with a server of their own, or none."""

    def setUp(self) -> None:
        self.home = Home()
        self.addCleanup(self.home.close)

    def test_no_server(self) -> None:
        done = self.home.run("submit", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"run `gpulayer up` or `gpulayer login`", done.stderr)
        self.home.env["GPULAYER_TARGET"] = "local"
        done = self.home.run("submit", "--detach", "--", "true")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn(b"cannot be left", done.stderr)
        del self.home.env["GPULAYER_TARGET"]
        self.assertEqual(self.home.run("ps").returncode, 1)
        self.assertEqual(self.home.run("down").stdout, b"nothing was up here\n")

    def test_down_leaves_nothing_and_up_starts_again_what_died(self) -> None:
        up = ("up", "--listen", "127.0.0.1:0")
        self.assertEqual(self.home.run(*up).returncode, 0)
        data = self.home.path / "data"
        record = json.loads((data / "daemons.json").read_text())
        pids = [record["server_process"]["pid"], record["worker_process"]["pid"]]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            done = self.home.run("up")
            self.assertEqual(done.returncode, 0, done)
            self.assertRegex(done.stdout, rb"^started the (server|worker) again")
        self.assertEqual(self.home.run("submit", "--", "true").returncode, 0)
        begin = time.monotonic()
        self.assertEqual(self.home.run("down").returncode, 0)
        self.assertLess(time.monotonic() - begin, 15)

        def left() -> list:
            mark = str(data).encode()
            found = []
            for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    if mark in process.read_bytes():
                        found.append(process)
                except OSError:
                    pass
            return found

        self.assertEqual(left(), [])
        # What knows the server finds it where it was.
        record = json.loads((data / "daemons.json").read_text())
        self.assertEqual(record["listen"], "127.0.0.1:0")
        self.assertEqual(self.home.run("down").stdout, b"nothing was up here\n")
        self.assertEqual(self.home.run("up").returncode, 0)
        self.assertEqual(json.loads((data / "daemons.json").read_text())["listen"], "127.0.0.1:0")
        done = self.home.run("join")
        self.assertIn(b"a server is up here already", done.stderr)

    def test_a_login_survives_a_server_that_was_killed(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.assertEqual(self.home.run("up", "--listen", address).returncode, 0)
        token = self.home.run("token", "create", "--role", "client").stdout.decode().split()[-1]
        far = Home()
        self.addCleanup(far.close)
        self.assertEqual(far.run("login", address, "--token", token).returncode, 0)
        go = self.home.path / "go"
        follow = far.start("submit", "--", "sh", "-c",
                           f"echo one; until [ -e {go} ]; do sleep 0.05; done; echo two; exit 9")
        self.assertEqual(follow.stdout.readline(), b"one\n")
        os.kill(json.loads((self.home.path / "data/daemons.json").read_text())["server_process"]["pid"], signal.SIGKILL)
        self.assertEqual(self.home.run("up").returncode, 0)
        go.touch()
        out, err = follow.communicate(timeout=60)
        self.assertEqual((out, follow.returncode), (b"two\n", 9), err)

    def test_down_says_what_it_interrupts(self) -> None:
        self.assertEqual(self.home.run("up", "--listen", "127.0.0.1:0").returncode, 0)
        done = self.home.run("down", "--json")
        self.assertEqual((json.loads(done.stdout)["stopped"], done.stderr), (["server", "worker"], b""))
        self.assertEqual(self.home.run("up", "--listen", "127.0.0.1:0").returncode, 0)
        job = self.home.run("submit", "-d", "--", "sleep", "600").stdout.decode().strip()
        eventually(lambda: json.loads(self.home.run("job", "show", job, "--json").stdout)["state"] == "running", "runs")
        self.assertIn(b"1 task was running", self.home.run("down").stderr)
        self.assertEqual(self.home.run("up").returncode, 0)
        eventually(lambda: json.loads(self.home.run("job", "show", job, "--json").stdout)["state"] == "running", "again")
        self.assertEqual(self.home.run("job", "cancel", "--now", job).returncode, 0)

    def test_an_up_that_fails_leaves_jobs_alone(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.assertEqual(self.home.run("up", "--listen", f"127.0.0.1:{port}").returncode, 0)
        job = self.home.run("submit", "-d", "--", "sh", "-c", "touch ran; sleep 3; echo whole").stdout.decode().strip()
        eventually(lambda: json.loads(self.home.run("job", "show", job, "--json").stdout)["state"] == "running", "runs")
        record = json.loads((self.home.path / "data/daemons.json").read_text())
        os.kill(record["server_process"]["pid"], signal.SIGKILL)
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

            def take() -> bool:
                try:
                    taken.bind(("127.0.0.1", port))
                except OSError:  # the killed server has not quite gone
                    return False
                return True

            eventually(take, "the port is free")
            taken.listen()
            self.assertEqual(self.home.run("up").returncode, 1)
        done = self.home.run("up")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.home.run("job", "wait", job).returncode, 0)
        shown = json.loads(self.home.run("job", "show", job, "--json").stdout)
        self.assertEqual(len(shown["tasks"][0]["attempts"]), 1, shown)

    def test_up_starts_a_server_again_that_lost_its_socket(self) -> None:
        self.assertEqual(self.home.run("up", "--listen", "127.0.0.1:0").returncode, 0)
        endpoint = json.loads((self.home.path / "data/server/endpoint.json").read_text())
        os.unlink(endpoint["socket"])
        done = self.home.run("up")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b"started the server again", done.stdout)
        self.assertEqual(self.home.run("submit", "--", "true").returncode, 0)

    def test_a_data_directory_that_is_not_text(self) -> None:
        done = self.home.run("up", "--data-dir", os.fsencode(self.home.path) + b"/d\xff")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"is not printable UTF-8", done.stderr)

    def test_a_port_in_use_and_nothing_half_started(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            done = self.home.run("up", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
            self.assertEqual(done.returncode, 1, done)
            self.assertIn(b"in use", done.stderr)
            self.assertFalse((self.home.path / "data/daemons.json").exists())

    def test_run_folders_of_two_servers_and_local_runs_never_mix(self) -> None:
        other = Home()
        self.addCleanup(other.close)
        other.cwd = self.home.cwd
        make = ("--", "sh", "-c", "echo $GPULAYER_JOB_ID > made")
        for home in (self.home, other):
            self.assertEqual(home.run("up", "--listen", "127.0.0.1:0").returncode, 0)
            self.assertEqual(home.run("submit", *make).returncode, 0)
        self.assertEqual(self.home.run("run", *make).returncode, 0)
        folders = sorted(p.name for p in (self.home.cwd / "gpulayer_runs").iterdir() if p.is_dir())
        self.assertEqual(len(folders), 3, folders)
        self.assertEqual((folders[0], folders[2]), ("1", "local-1"))
        self.assertRegex(folders[1], r"^1-[0-9a-f]{6}$")

    def test_a_local_run_needs_no_server_and_leaves_none(self) -> None:
        done = self.home.run("run", "--", "sh", "-c", "echo local; exit 4")
        self.assertEqual((done.returncode, done.stdout), (4, b"local\n"), done)
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes()
            except OSError:
                continue
            self.assertNotIn(str(self.home.path).encode(), environment)

    def test_a_local_run_that_is_left_says_that_it_ends(self) -> None:
        client = self.home.start("run", "--", "sh", "-c", "echo started; exec sleep 600")
        self.assertEqual(client.stdout.readline(), b"started\n")
        client.send_signal(signal.SIGTERM)
        _, err = client.communicate(timeout=PATIENCE)
        self.assertEqual(client.returncode, 143, err)
        self.assertIn(b"ends too: its server was a private one", err)
        self.assertNotIn(b"attach", err)

    def test_a_local_run_whose_server_is_killed_ends_and_leaves_nothing(self) -> None:
        temporary = self.home.path / "tmp"
        temporary.mkdir()
        self.home.env["TMPDIR"] = str(temporary)
        for kill, said in ((signal.SIGKILL, b"ended (signal 9): the job ended with it"),
                           (signal.SIGTERM, b"the job ended with it")):
            client = self.home.start("run", "--", "sh", "-c", "echo started; exec sleep 600")
            self.assertEqual(client.stdout.readline(), b"started\n")
            children = pathlib.Path(f"/proc/{client.pid}/task/{client.pid}/children").read_text().split()
            os.kill(int(children[0]), kill)
            begin = time.monotonic()
            _, err = client.communicate(timeout=PATIENCE)
            self.assertEqual(client.returncode, 125, err)
            self.assertLess(time.monotonic() - begin, 15)
            self.assertIn(said, err)
            self.assertEqual(list(temporary.iterdir()), [])

    def test_a_local_run_and_tmpdir(self) -> None:
        (self.home.cwd / "here").mkdir()
        env = self.home.env | {"TMPDIR": "here"}
        self.assertEqual(self.home.run("run", "--", "echo", "x", env=env).stdout, b"x\n")
        done = self.home.run("run", "--", "true", env=self.home.env | {"TMPDIR": "/no/such/folder"})
        self.assertEqual(done.returncode, 125, done)
        self.assertRegex(done.stderr, rb"TMPDIR /no/such/folder: .*No such file.*\. Set TMPDIR to a folder")

    def test_in_the_foreground_until_a_signal(self) -> None:
        up = self.home.start("up", "--foreground", "--listen", "127.0.0.1:0")
        self.assertIn(b"GPUlayer is up", up.stdout.readline())
        up.send_signal(signal.SIGTERM)
        up.communicate(timeout=PATIENCE)
        self.assertEqual(up.returncode, 0)
        self.assertEqual(self.home.run("down").stdout, b"nothing was up here\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
