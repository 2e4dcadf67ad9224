#!/usr/bin/env python3
import os
import pathlib
import signal
import subprocess
import time
import unittest

from programs import CLI, Home, PATIENCE


class Local(unittest.TestCase):
    """Runs on this machine, each with a private server."""

    def setUp(self) -> None:
        self.home = Home()
        self.addCleanup(self.home.close)

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

    def test_a_local_run_under_low_limits_says_so_and_leaves_nothing(self) -> None:
        def limited(limit: str, *words: str) -> "subprocess.CompletedProcess[bytes]":
            return subprocess.run(["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", CLI, *words], cwd=self.home.cwd,
                                  env=self.home.env | {"TMPDIR": str(self.home.cwd)}, capture_output=True,
                                  timeout=PATIENCE)

        if limited("-v 1500000", "--version").returncode != 0:
            self.skipTest("this build needs more memory to start")
        for limit, said in (("-v 200000", b"gpulayer: an address space of "),
                            ("-v 700000", b"gpulayer: local server: an address space of "),
                            ("-n 7", b"gpulayer: 7 open files are too few")):
            done = limited(limit, "run", "--", "echo", "hi")
            self.assertEqual((done.returncode, done.stdout), (125, b""), done)
            self.assertTrue(done.stderr.startswith(said), done)
            self.assertIn(b"Raise the limits of this account", done.stderr)
        self.assertEqual(list(self.home.cwd.glob("gpulayer-local-*")), [])

    def test_a_local_run_and_tmpdir(self) -> None:
        (self.home.cwd / "here").mkdir()
        env = self.home.env | {"TMPDIR": "here"}
        self.assertEqual(self.home.run("run", "--", "echo", "x", env=env).stdout, b"x\n")
        done = self.home.run("run", "--", "true", env=self.home.env | {"TMPDIR": "/no/such/folder"})
        self.assertEqual(done.returncode, 125, done)
        self.assertRegex(done.stderr, rb"TMPDIR /no/such/folder: .*No such file.*\. Set TMPDIR to a folder")


if __name__ == "__main__":
    unittest.main(verbosity=2)
