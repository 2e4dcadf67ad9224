#!/usr/bin/env python3
import json
import os
import pathlib
import signal
import subprocess
import unittest

from programs import BIN, Home, PATIENCE, Up, eventually


class Doctor(Up):
    """What is in the way, and what to do about it."""

    def diagnose(self, home: Home, code: int, *args: str) -> "dict[str, dict]":
        done = home.run("doctor", "--json", *args)
        self.assertEqual(done.returncode, code, done)
        items = json.loads(done.stdout)["items"]
        self.assertEqual(code, 0 if all(item["ok"] for item in items) else 1, items)
        return {item["check"]: item for item in items}

    def failed(self, home: Home, check: str, *words: str) -> None:
        found = self.diagnose(home, 1)[check]
        self.assertFalse(found["ok"], found)
        for word in words:
            self.assertIn(word, found["text"])

    def fresh(self) -> Home:
        home = Home()
        self.addCleanup(home.close)
        return home

    def log_in(self, home: Home) -> None:
        done = home.run("login", self.address(), "--token", self.token("client"), "--name", "box")
        self.assertEqual(done.returncode, 0, done)

    def test_all_is_well(self) -> None:
        found = self.diagnose(self.home, 0)
        self.assertEqual(list(found), ["install", "limits", "configuration", "data directory", "disk", "server", "workers"])
        self.assertIn("server and worker are up", found["data directory"]["text"])
        self.assertEqual(found["workers"]["text"], "1 of 1 online")
        said = self.gpulayer("doctor").stdout.decode()
        self.assertRegex(said, r"(?m)^workers +ok +1 of 1 online$")

    def test_a_login_is_asked(self) -> None:
        home = self.fresh()
        self.log_in(home)
        found = self.diagnose(home, 0)
        self.assertRegex(found["login box"]["text"], r"^127\.0\.0\.1:\d+: .+ \(client\), version 0\.")
        self.assertTrue(found["clock"]["ok"])
        self.assertEqual(found["workers"]["text"], "1 of 1 online")
        tokens = json.loads(self.gpulayer("token", "list", "--json").stdout)["items"]
        logins = [t for t in tokens if t["kind"] == "credential" and t["role"] == "client"]
        self.gpulayer("token", "revoke", max(logins, key=lambda t: t["created_at"])["id"])
        self.failed(home, "login box", "revoked")

    def test_no_server_and_one_that_died(self) -> None:
        home = self.fresh()
        self.failed(home, "server", "gpulayer up")
        self.assertEqual(home.run("up", "--listen", "127.0.0.1:0", "--slots", "1").returncode, 0)
        self.diagnose(home, 0)
        elsewhere = self.fresh()
        address = json.loads(home.run("status", "--json").stdout)["addresses"][0]
        token = home.run("token", "create", "--role", "client").stdout.decode().strip()
        self.assertEqual(elsewhere.run("login", address, "--token", token, "--name", "box").returncode, 0)
        pid = int((home.path / "data/server/lock").read_text())
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not pathlib.Path(f"/proc/{pid}/fd/0").exists(), "its end")
        self.failed(home, "data directory", "the server has died", "gpulayer up")
        self.failed(elsewhere, "login box", address, "nobody listens there")
        self.assertEqual(home.run("up").returncode, 0)
        eventually(lambda: home.run("doctor").returncode == 0, "the worker is back at the server")
        self.assertEqual(home.run("down").returncode, 0)
        found = self.diagnose(home, 1)
        self.assertIn("nothing is up", found["data directory"]["text"])
        self.assertFalse(found["server"]["ok"])

    def test_a_machine_that_only_joined_is_well(self) -> None:
        home, server = self.fresh(), self.fresh()  # not the one of the other cases: its worker dies here
        self.assertEqual(server.run("up", "--listen", "127.0.0.1:0", "--no-worker").returncode, 0)
        self.assertIn("the server knows none", self.diagnose(server, 1)["workers"]["text"])
        address = json.loads(server.run("status", "--json").stdout)["addresses"][0]
        token = server.run("token", "create", "--role", "worker").stdout.decode().strip()
        done = home.run("join", address, "--token", token, "--name", "joined")
        self.assertEqual(done.returncode, 0, done)
        found = self.diagnose(home, 0)
        self.assertIn("a worker of 127.0.0.1:", found["data directory"]["text"])
        self.assertIn("has no login there", found["server"]["text"])
        pid = int((home.path / "data/worker/worker.lock").read_text())
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not pathlib.Path(f"/proc/{pid}/fd/0").exists(), "its end")
        self.failed(home, "data directory", "has ended", "gpulayer join")

    def test_folders_that_others_write_to(self) -> None:
        home = self.fresh()
        self.log_in(home)
        for path, mode, what in (("config", 0o770, "write"), ("config/targets", 0o755, "look"),
                                 ("config/targets/box.json", 0o644, "look")):
            before = (home.path / path).stat().st_mode & 0o777
            (home.path / path).chmod(mode)
            self.failed(home, "configuration", f"other accounts may {what} there", "chmod go-")
            (home.path / path).chmod(before)
        self.diagnose(home, 0)
        (home.path / "data").mkdir(exist_ok=True)
        (home.path / "data").chmod(0o777)
        self.failed(home, "data directory", "other accounts may write there")
        (home.path / "data").chmod(0o700)
        (home.path / "config/targets/box.json").write_text("{")
        self.failed(home, "login box", "damaged")

    def test_programs_of_two_versions(self) -> None:
        home = self.fresh()
        bin_dir = home.path / "bin"
        bin_dir.mkdir()
        for name in ("gpulayer-server", "gpulayer-exec"):
            (bin_dir / name).symlink_to(BIN / name)
        (bin_dir / "gpulayer-worker").write_text("#!/bin/sh\necho gpulayer-worker 9.9.9\n")
        (bin_dir / "gpulayer-worker").chmod(0o755)
        home.env["GPULAYER_BINDIR"] = str(bin_dir)
        self.failed(home, "install", 'says "gpulayer-worker 9.9.9"', "install all programs of one version")

    def test_limits_that_are_too_low(self) -> None:
        done = subprocess.run(["sh", "-c", f"ulimit -n 40; exec {BIN}/gpulayer doctor --json"], capture_output=True,
                              env=self.home.env, timeout=PATIENCE)
        self.assertEqual(done.returncode, 1, done)
        found = {item["check"]: item for item in json.loads(done.stdout)["items"]}
        self.assertIn("40 open files are too few", found["limits"]["text"])
        self.assertNotIn("server", found)


if __name__ == "__main__":
    unittest.main(verbosity=2)
