#!/usr/bin/env python3
import json
import os
import pathlib
import re
import signal
import time
import unittest

from programs import PATIENCE, Up, eventually


class Signals(Up):
    """A client that is interrupted."""

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

    def test_another_signal_ends_it_wherever_it_hangs(self) -> None:
        fifo = self.home.path / ".gitconfig"
        os.mkfifo(fifo)  # git's library opens it, and nobody ever writes
        source = self.home.path / "source"
        source.mkdir()
        self.addCleanup(self.home.env.update, HOME=self.home.env.get("HOME", "/"))
        self.home.env["HOME"] = str(self.home.path)
        client = self.home.start("submit", "--source", str(source), "--", "true")

        def hears() -> bool:
            status = pathlib.Path(f"/proc/{client.pid}/status").read_text()
            found = re.search(r"^SigBlk:\s*([0-9a-f]+)", status, re.MULTILINE)
            assert found, status
            return bool(int(found.group(1), 16) & (1 << (signal.SIGTERM - 1)))

        eventually(hears, "its own way with signals")
        client.send_signal(signal.SIGINT)
        client.send_signal(signal.SIGTERM)
        client.communicate(timeout=10)
        self.assertIn(client.returncode, (130, 143))

    def test_sigterm_leaves_the_job_running(self) -> None:
        client = self.home.start("submit", "--", "sh", "-c", "echo started; exec sleep 600")
        self.assertEqual(client.stdout.readline(), b"started\n")
        client.send_signal(signal.SIGTERM)
        _, err = client.communicate(timeout=10)
        self.assertEqual(client.returncode, 143, err)
        found = re.search(rb"gpulayer job attach (\d+)", err)
        assert found, err
        job = found.group(1).decode()
        # The output may overtake the news that the program runs.
        eventually(lambda: json.loads(self.gpulayer("job", "show", job, "--json").stdout)["state"] == "running",
                   "the job goes on")
        follower = self.home.start("job", "attach", job)
        self.assertEqual(follower.stdout.readline(), b"started\n")
        self.gpulayer("cancel", job)
        follower.communicate(timeout=PATIENCE)
        self.assertEqual(follower.returncode, 130)


if __name__ == "__main__":
    unittest.main(verbosity=2)
