#!/usr/bin/env python3
import json
import os
import pathlib
import pty
import secrets
import subprocess
import unittest

from programs import CLI, Home, PATIENCE, Up, eventually

# Of the job in its turn: whoever reads the variable alone may have it.
HOLD = 'echo "$GPULAYER_JOB_ID:${#TOK}"; : > "$GO.up"; while [ ! -e "$GO" ]; do sleep 0.05; done'


def holders(root: pathlib.Path, value: bytes) -> "list[str]":
    """Files below `root` that hold the value."""
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = pathlib.Path(folder) / name
            try:
                if path.is_file() and value in path.read_bytes():
                    found.append(str(path))
            except OSError:
                pass
    return found


def command_lines(value: bytes) -> "list[str]":
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if value in path.read_bytes():
                found.append(str(path))
        except OSError:
            pass
    return found


class Secrets(Up):
    """A value is in its program's environment and nowhere else."""

    def setUp(self) -> None:
        self.value = "s3cr3t-" + secrets.token_hex(12)
        self.env = self.home.env | {"TOK": self.value, "GPULAYER_LOG": "debug"}
        self.go = str(self.home.path / ("go-" + secrets.token_hex(4)))

    def assert_nowhere(self) -> None:
        self.assertEqual(holders(self.home.path, self.value.encode()), [])
        self.assertEqual(command_lines(self.value.encode()), [])

    def show(self, job: str) -> dict:
        shown = self.gpulayer("job", "show", job, "--json").stdout
        self.assertNotIn(self.value.encode(), shown)
        return json.loads(shown)

    def sealed(self) -> "list[str]":
        return sorted(p.name for p in self.home.path.glob("data/**/secrets/v1/*"))

    def test_f47_a_secret_is_found_nowhere(self) -> None:
        job = self.gpulayer("submit", "-d", "--secret", "TOK", "--env", "GO=" + self.go, "--", "sh", "-c", HOLD + "; false",
                            env=self.env).stdout.decode().strip()
        eventually(lambda: os.path.exists(self.go + ".up"), "the program's start")
        self.assert_nowhere()
        self.assertEqual(len(self.sealed()), 1)
        self.assertEqual(self.show(job)["request"]["secrets"], ["TOK"])
        for words in (("job", "show", job), ("job", "list"), ("job", "list", "--json"), ("job", "explain", job)):
            self.assertNotIn(self.value.encode(), self.gpulayer(*words).stdout)
        self.assertRegex(self.gpulayer("job", "show", job).stdout.decode(), r"secrets: +TOK\n")
        sibling = self.gpulayer("submit", "--", "sh", "-c", 'echo "<$TOK>"; env').stdout
        self.assertTrue(sibling.startswith(b"<>\n"), sibling)
        self.assertNotIn(self.value.encode(), sibling)
        pathlib.Path(self.go).touch()
        self.gpulayer("job", "wait", job, code=1)
        self.assertEqual(self.gpulayer("logs", job).stdout.decode(), f"{job}:{len(self.value)}\n")
        self.assert_nowhere()
        eventually(lambda: not self.sealed(), "the end of what is sealed")
        refused = self.gpulayer("job", "retry", job, code=1)
        self.assertIn(b"its secrets were erased at its end. Give them again: --secret TOK", refused.stderr)
        self.gpulayer("job", "retry", job, "--secret", "TOK", "--secret", "HOME", code=1, env=self.env)
        again = self.gpulayer("job", "retry", job, "--secret", "TOK", env=self.env).stdout.decode().strip()
        self.gpulayer("job", "wait", again, code=1)
        self.assertEqual(self.gpulayer("logs", again).stdout.decode(), f"{again}:{len(self.value)}\n")
        eventually(lambda: not self.sealed(), "the end of what is sealed")
        self.assert_nowhere()

    def test_each_task_has_it(self) -> None:
        done = self.gpulayer("submit", "--array", "0-3", "--all-logs", "--secret", "TOK", "--", "sh", "-c",
                             "echo ${#TOK}", env=self.env)
        self.assertEqual(done.stdout.count(str(len(self.value)).encode()), 4, done)

    def test_from_a_file_and_from_standard_input(self) -> None:
        (self.home.cwd / "key").write_bytes(b"two\nlines\xff\n")
        done = subprocess.run([CLI, "submit", "--secret", "A=@key", "--secret", "B=-", "--", "sh", "-c",
                               'printf %s "$A|$B|"'], input=b"typed\n", cwd=self.home.cwd, env=self.home.env,
                              capture_output=True, timeout=PATIENCE)
        self.assertEqual((done.returncode, done.stdout), (0, b"two\nlines\xff|typed|"), done)

    def test_asked_on_a_terminal_and_not_shown(self) -> None:
        ours, theirs = pty.openpty()
        client = subprocess.Popen([CLI, "submit", "--secret", "TOK=-", "--", "sh", "-c", "echo ${#TOK}"],
                                  stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, cwd=self.home.cwd,
                                  env=self.home.env)
        os.close(theirs)
        shown = b""
        while b"TOK (not shown): " not in shown:
            shown += os.read(ours, 1000)
        os.write(ours, self.value.encode() + b"\n")
        assert client.stdout is not None
        with client.stdout as out:
            self.assertEqual(out.read().decode(), f"{len(self.value)}\n")
        self.assertEqual(client.wait(PATIENCE), 0)
        while True:
            try:
                piece = os.read(ours, 1000)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        os.close(ours)
        self.assertNotIn(self.value.encode(), shown)

    def test_a_value_on_the_command_line_is_refused_and_not_repeated(self) -> None:
        for words in (("--secret", "TOK=" + self.value, "--", "true"), ("--secret=TOK=" + self.value, "--", "true"),
                      ("--secret", "TOK=" + self.value, "true"), ("--secret=TOK=" + self.value, "sh", "--x"),
                      ("--secret", self.value, "--", "true")):
            done = self.gpulayer("submit", *words, code=2)
            self.assertNotIn(self.value.encode(), done.stdout + done.stderr)
            self.assertIn(b"--secret", done.stderr)

    def test_in_a_local_run(self) -> None:
        done = self.gpulayer("run", "--secret", "TOK", "--", "sh", "-c", "echo ${#TOK}", env=self.env)
        self.assertEqual(done.stdout.decode(), f"{len(self.value)}\n")


class Killed(unittest.TestCase):
    """A worker that dies between an assignment and the start."""

    def test_the_next_attempt_has_the_secret(self) -> None:
        value = "s3cr3t-" + secrets.token_hex(12)
        for point in ("before", "after"):
            with self.subTest(point):
                home = Home()
                try:
                    self.kill_and_come_back(home, point, value)
                finally:
                    home.close()

    def kill_and_come_back(self, home: Home, point: str, value: str) -> None:
        env = home.env | {"TOK": value}
        fault = home.env | {"GPULAYER_FAULT": f"worker.{point}_start=kill"}
        done = home.run("up", "--listen", "127.0.0.1:0", "--slots", "1", env=fault)
        self.assertEqual(done.returncode, 0, done)
        done = home.run("submit", "-d", "--secret", "TOK", "--", "sh", "-c", "echo ${#TOK}", env=env)
        self.assertEqual(done.returncode, 0, done)
        job = done.stdout.decode().strip()

        def offline() -> bool:
            workers = json.loads(home.run("worker", "list", "--json").stdout)["items"]
            return bool(workers) and workers[0]["state"] != "online"

        eventually(offline, "the worker's death")
        self.assertEqual(holders(home.path, value.encode()), [])
        self.assertEqual(home.run("up").returncode, 0)
        self.assertEqual(home.run("job", "wait", job).returncode, 0)
        self.assertEqual(home.run("logs", job).stdout.decode(), f"{len(value)}\n")
        self.assertEqual(holders(home.path, value.encode()), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
