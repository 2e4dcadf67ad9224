#!/usr/bin/env python3
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from programs import CLI, Home, PATIENCE, SlowRelay, Up, eventually


class Terminal:
    """`gpulayer` on a terminal of its own, as a person sees it."""

    def __init__(self, home: Home, *args: str, rows: int = 33, columns: int = 101) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.shown = b""
        self.client = subprocess.Popen([CLI, *args], stdin=theirs, stdout=theirs, stderr=theirs, cwd=home.cwd,
                                       env=home.env | {"TERM": "vt220"}, start_new_session=True)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        if self.client.poll() is None:
            self.client.kill()
            self.client.wait()
        os.close(self.ours)
        os.close(self.theirs)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: bytes) -> None:
        os.write(self.ours, text)

    def read_until(self, pattern: bytes) -> "re.Match[bytes]":
        """What is shown up to there is read."""
        end = time.monotonic() + PATIENCE
        while True:
            found = re.search(pattern, self.shown)
            if found:
                self.shown = self.shown[found.end():]
                return found
            ready, _, _ = select.select([self.ours], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"not shown: {pattern!r}, but {self.shown!r}")
            self.shown += os.read(self.ours, 65536)

    def end(self) -> int:
        """The exit code; the terminal is as it was."""
        code = self.client.wait(PATIENCE)
        assert termios.tcgetattr(self.theirs) == self.before
        return code


class Exec(Up):
    """A command inside a running job."""

    def start(self, *options: str, command: str = "exec sleep 600", task: int = 0) -> str:
        job = self.gpulayer("submit", "-d", *options, "--", "sh", "-c", command).stdout.decode().strip()
        self.addCleanup(self.home.run, "cancel", "--now", job)
        eventually(lambda: self.task_state(job, task) == "running", "the job's start")
        return job

    def task_state(self, job: str, task: int) -> str:
        shown = json.loads(self.gpulayer("job", "show", job, "--json").stdout)
        return next((t["state"] for t in shown["tasks"] if t["index"] == task), "queued")

    def exec(self, *args: "str | bytes", code: int = 0, **kwargs: object) -> "subprocess.CompletedProcess[bytes]":
        return self.gpulayer("job", "exec", *args, code=code, **kwargs)

    def test_it_sees_what_the_job_sees(self) -> None:
        job = self.start("--env", "GREETING=hello", command="echo x > made; exec sleep 600")
        eventually(lambda: b"made" in self.exec(job, "--", "ls").stdout, "the job's file")
        done = self.exec(job, "--", "sh", "-c", 'echo "$GREETING $GPULAYER_JOB_ID"; echo seen > note')
        self.assertEqual(done.stdout, f"hello {job}\n".encode(), done)
        self.assertEqual(self.exec(job, "--", "cat", "note").stdout, b"seen\n")

    def test_streams_apart_and_bytes_as_they_are(self) -> None:
        job = self.start()
        done = self.exec(job, "--", "sh", "-c", 'printf %s "$1"; printf "\\200" >&2', "sh", b"a\xff  b\n")
        self.assertEqual((done.stdout, done.stderr), (b"a\xff  b\n", b"\x80"), done)

    def test_standard_input_is_passed_to_its_end(self) -> None:
        job = self.start()
        data = os.urandom(5_000_000)
        with subprocess.Popen([CLI, "job", "exec", job, "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              cwd=self.home.cwd, env=self.home.env) as client:
            out, _ = client.communicate(data, timeout=PATIENCE)
        self.assertEqual(client.returncode, 0)
        self.assertTrue(out == data)
        # Input that nobody reads is no reason to wait.
        with subprocess.Popen([CLI, "job", "exec", job, "--", "true"], stdin=subprocess.PIPE,
                              cwd=self.home.cwd, env=self.home.env) as client:
            self.assertEqual(client.wait(PATIENCE), 0)

    def test_exit_codes(self) -> None:
        job = self.start()
        self.exec(job, "--", "sh", "-c", "exit 7", code=7)
        self.exec(job, "--", "sh", "-c", "kill -9 $$", code=137)
        self.assertIn(b"no-such-program", self.exec(job, "--", "no-such-program", code=127).stderr)
        self.exec(job, "--", "/dev/null", code=126)

    def test_what_cannot_be(self) -> None:
        self.assertIn(b"no such job", self.exec("999999", "--", "true", code=125).stderr)
        job = self.start()
        self.assertIn(b"it has no task 5", self.exec(job + ".5", "--", "true", code=125).stderr)
        done = self.exec(job, code=2)
        self.assertIn(b"what to run?", done.stderr)
        queued = self.gpulayer("submit", "-d", "--slots", "4", "--", "true").stdout.decode().strip()
        self.assertIn(b"is queued, there is nothing to run a command in", self.exec(queued, "--", "true", code=125).stderr)
        self.gpulayer("cancel", queued)
        self.assertIn(b"is over, there is nothing", self.exec(queued, "--", "true", code=125).stderr)

    def test_a_task_of_an_array(self) -> None:
        job = self.start("--array", "1-2", task=2)
        self.assertIn(b"it has 2 tasks. Name one, as", self.exec(job, "--", "true", code=125).stderr)
        done = self.exec(job + ".2", "--", "sh", "-c", "echo $GPULAYER_TASK")
        self.assertEqual(done.stdout, b"2\n")

    def test_another_user_is_refused(self) -> None:
        job = self.start()
        token = self.token("client", "--user", "somebody-else")
        other = Home()
        self.addCleanup(other.close)
        self.assertEqual(other.run("login", self.address(), "--token", token).returncode, 0)
        refused = other.run("job", "exec", job, "--", "true")
        self.assertEqual(refused.returncode, 125, refused)
        self.assertIn(b"it is a job of", refused.stderr)

    def test_the_job_that_ends_meanwhile(self) -> None:
        job = self.start()
        client = self.home.start("job", "exec", job, "--", "sh", "-c", "echo started; exec sleep 600")
        self.assertEqual(client.stdout.readline(), b"started\n")
        self.gpulayer("cancel", "--now", job)
        client.communicate(timeout=PATIENCE)
        self.assertIn(client.returncode, (125, 137, 143))

    def test_a_signal_hangs_up_and_the_job_goes_on(self) -> None:
        job = self.start()
        for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            pid_file = self.home.path / f"pid-{sent}"
            client = self.home.start("job", "exec", job, "--", "sh", "-c", f"echo $$ > {pid_file}; echo started; exec sleep 600")
            self.assertEqual(client.stdout.readline(), b"started\n")
            client.send_signal(sent)
            _, err = client.communicate(timeout=PATIENCE)
            self.assertEqual(client.returncode, 128 + sent, err)
            self.assertIn(f"the command was ended; job {job} goes on".encode(), err)
            pid = pid_file.read_text().strip()
            eventually(lambda: not pathlib.Path(f"/proc/{pid}").exists(), "the command's end")
        self.assertEqual(self.task_state(job, 0), "running")

    def test_a_reader_that_has_seen_enough(self) -> None:
        job = self.start()
        done = subprocess.run(["bash", "-c", f"{CLI} job exec {job} -- yes | head -n 1; echo ${{PIPESTATUS[0]}}"],
                              capture_output=True, cwd=self.home.cwd, env=self.home.env, stdin=subprocess.DEVNULL,
                              timeout=PATIENCE)
        self.assertEqual(done.stdout, b"y\n141\n", done)

    def test_a_shell_on_a_terminal(self) -> None:
        job = self.start("--env", "PS1=ready> ")
        with Terminal(self.home, "job", "exec", job, "--", "sh") as terminal:
            terminal.read_until(rb"ready> ")
            terminal.type(b"exit 3\n")
            self.assertEqual(terminal.end(), 3)
        with Terminal(self.home, "job", "exec", job) as terminal:
            terminal.type(b"PS1='rea''dy> '\n")  # whatever its own files say
            terminal.read_until(rb"ready> ")
            terminal.type(b"stty size; echo $TERM; tty\n")
            terminal.read_until(rb"33 101\r\n")
            terminal.read_until(rb"vt220\r\n")
            terminal.read_until(rb"/dev/pts/\d+\r\n")
            terminal.resize(44, 55)
            terminal.client.send_signal(signal.SIGWINCH)  # our own terminal is nobody's controlling one
            eventually(lambda: self.size_in(terminal) == (44, 55), "the new size")
            terminal.type(b"sh -c 'echo begun; exec sleep 600'\n")  # then it is the one that hears the key
            terminal.read_until(rb"[\r\n]begun\r\n")
            terminal.type(b"\x03")  # ends the sleep, not the shell
            terminal.read_until(rb"ready> ")  # before that it is not listening
            terminal.type(b"echo code $?\n")
            terminal.read_until(rb"[\r\n]code 130\r\n")
            terminal.type(b"exit 9\n")
            self.assertEqual(terminal.end(), 9)
        self.assertEqual(self.task_state(job, 0), "running")

    def size_in(self, terminal: Terminal) -> "tuple[int, int]":
        terminal.type(b"stty size\n")
        found = terminal.read_until(rb"[\r\n](\d+) (\d+)\r\n")
        return int(found[1]), int(found[2])

    def test_a_terminal_is_as_it_was_after_a_signal(self) -> None:
        job = self.start()
        for sent in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            with Terminal(self.home, "job", "exec", job, "--", "sh", "-c", "echo started; exec sleep 600") as terminal:
                terminal.read_until(rb"started\r\n")
                eventually(lambda: termios.tcgetattr(terminal.theirs) != terminal.before, "raw mode")
                terminal.client.send_signal(sent)
                self.assertEqual(terminal.end(), -sent if sent == signal.SIGQUIT else 128 + sent)

    def test_a_connection_that_is_lost(self) -> None:
        job = self.start()
        host, port = self.address().rsplit(":", 1)
        guest = Home()
        self.addCleanup(guest.close)
        with SlowRelay((host, int(port)), 0) as relay:
            done = guest.run("login", relay.address, "--token", self.token("client"))
            self.assertEqual(done.returncode, 0, done)
            terminal = Terminal(guest, "job", "exec", job, "--", "sh", "-c", "echo started; exec sleep 600")
            terminal.read_until(rb"started\r\n")
        with terminal:
            self.assertEqual(terminal.end(), 125)
            terminal.read_until(f"the command was ended; job {job} goes on".encode())
        self.assertEqual(self.task_state(job, 0), "running")


if __name__ == "__main__":
    unittest.main(verbosity=2)
