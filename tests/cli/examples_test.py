#!/usr/bin/env python3
import json
import os
import re
import subprocess
import unittest

from programs import BIN, Home, PATIENCE, Up, eventually


class Examples(Up):
    """What the help of each verb shows is run as it stands there, but for names of this test's own."""

    guest: Home  # another machine

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.guest = Home()
        for home in (cls.home, cls.guest):
            home.env["PATH"] = f"{BIN}:{os.environ['PATH']}"
        (cls.home.cwd / "train.py").write_text("import sys; print('trained', sys.argv[1:])\n")
        token = cls.home.run("token", "create", "--role", "worker").stdout.decode().strip()
        address = json.loads(cls.home.run("status", "--json").stdout)["addresses"][0]
        done = cls.guest.run("join", address, "--token", token, "--name", "gpu-box")
        assert done.returncode == 0, done

    @classmethod
    def tearDownClass(cls) -> None:
        cls.guest.close()
        super().tearDownClass()

    def help(self, path: "list[str]") -> str:
        return self.gpulayer(*path, "--help").stdout.decode()

    def verbs(self, path: "list[str]") -> "list[str]":
        """Those below a group; verbs that are not built yet have no help, and are not in it."""
        listed = re.search(r"\nSubcommands:\n((?:  .*\n)+)", self.help(path))
        return re.findall(r"^  (\w+)", listed[1], re.M) if listed else []

    def paths(self) -> "list[list[str]]":
        out: "list[list[str]]" = [[]]
        for verb in self.verbs([]):
            out += [[verb], *([verb, sub] for sub in self.verbs([verb]))]
        return out

    def bash(self, script: str, home: Home) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(["bash", "-c", script], capture_output=True, stdin=subprocess.DEVNULL, cwd=home.cwd,
                              env=home.env, timeout=PATIENCE)

    def job(self, example: str) -> str:
        if " cancel " in example:
            return self.gpulayer("submit", "-d", "--", "sleep", "60").stdout.decode().strip()
        if " exec " in example:
            job = self.gpulayer("submit", "-d", "--", "sleep", "60").stdout.decode().strip()
            eventually(lambda: json.loads(self.gpulayer("job", "show", job, "--json").stdout)["state"] == "running",
                       "the job's start")
            return job
        if " --failed" in example:
            job = self.gpulayer("submit", "-d", "--shell", "exit $GPULAYER_TASK", "--array", "0-1").stdout.decode()
            self.gpulayer("job", "wait", job.strip(), code=1)
            return job.strip()
        job = self.gpulayer("submit", "-d", "--", "sh", "-c", "echo x > file").stdout.decode().strip()
        self.gpulayer("job", "wait", job)
        return job

    def log_in(self) -> None:
        done = self.guest.run("login", self.address(), "--token", self.token("client"), "--name", "server-box")
        self.assertEqual(done.returncode, 0, done)

    def prepare(self, example: str) -> "tuple[str, Home]":
        """With names that are there, and the machine to type it on."""
        home = self.home
        verb = example.split()[1]
        if verb in ("down", "join", "login", "logout", "target"):
            home = self.guest
        if verb == "down":
            self.guest.run("join")
        if verb in ("logout", "target"):
            self.log_in()
        if "@token" in example:
            (home.cwd / "token").write_text(self.token("worker" if verb == "join" else "client"))
        example = example.replace("server-box:7461", self.address())
        example = re.sub(r"\b42\b|\b43\b", lambda _: self.job(example), example)
        if "3f9c21d407ab" in example:
            example = example.replace("3f9c21d407ab", self.token("client").split(".")[2])
        return example, home

    def test_the_example_of_every_verb_runs(self) -> None:
        ran = 0
        for path in self.paths():
            found = re.search(r"\nExample:\n  (.+)\n$", self.help(path))
            with self.subTest(verb=" ".join(path)):
                self.assertTrue(found)
                assert found
                self.assertIn(" ".join(["gpulayer", *path]), found[1])
                example, home = self.prepare(found[1])
                done = self.bash(example, home)
                self.assertEqual(done.returncode, 0, (example, done))
                self.assertNotIn(b"not built yet", done.stderr)
                ran += 1
        self.assertGreater(ran, 30)

    def completed(self, script: bytes, words: "list[str]") -> "set[str]":
        typed = " ".join(word or "''" for word in ["gpulayer", *words])
        asked = f"\nCOMP_WORDS=({typed}); COMP_CWORD={len(words)}; _gpulayer; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        done = self.bash(script.decode() + asked, self.home)
        self.assertEqual(done.stderr, b"", done)
        return set(done.stdout.decode().split())

    def test_completion_offers_what_the_help_lists(self) -> None:
        script = self.gpulayer("completion", "bash").stdout
        self.assertIn("show", self.completed(script, ["job", ""]))
        self.assertIn("--source", self.completed(script, ["submit", "--"]))
        for path in self.paths():
            with self.subTest(verb=" ".join(path)):
                verbs = self.verbs(path)
                if verbs:
                    self.assertEqual(self.completed(script, [*path, ""]) - {"--help"}, set(verbs))
                if path:
                    options = set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", self.help(path), re.M))
                    self.assertEqual(self.completed(script, [*path, "--"]), options)


if __name__ == "__main__":
    unittest.main(verbosity=2)
