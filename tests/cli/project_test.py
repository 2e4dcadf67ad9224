#!/usr/bin/env python3
import json
import pathlib
import tempfile
import unittest

from programs import Up


class Project(Up):
    """[tool.gpulayer] of a pyproject.toml."""

    def setUp(self) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.home.path))
        (self.folder / ".git").mkdir()

    def write(self, text: str) -> None:
        (self.folder / "pyproject.toml").write_text(text)

    def request(self, *args: str, **kwargs: object) -> dict:
        done = self.gpulayer("submit", "-d", *args, "--", "true", cwd=self.folder, **kwargs)
        return json.loads(self.gpulayer("job", "show", done.stdout.decode().strip(), "--json").stdout)["request"]

    def test_what_is_typed_wins(self) -> None:
        (self.folder / "vars").write_text("C=file\nD=file\n")
        self.write("""[tool.gpulayer]
memory = "64MiB"
slots = 2
time = "5m"
log-limit = "1MiB"
keep = true
env = {A = "project", B = "project", C = "project"}
output = ["*.png", "*.txt"]
""")
        asked = self.request()
        self.assertEqual((asked["memory_bytes"], asked["slots"], asked["time_limit_ms"]), (64 << 20, 2, 300_000))
        self.assertEqual((asked["log_limit_bytes"], asked["keep"]), (1 << 20, True))
        self.assertEqual({e["name"]: e["value"] for e in asked["env"]},
                         {"A": "project", "B": "project", "C": "project"})
        self.assertEqual(asked["outputs"]["globs"], ["*.png", "*.txt"])
        asked = self.request("--slots", "1", "--env", "A=typed", "--env-file", "vars", "--output", "./x")
        self.assertEqual((asked["memory_bytes"], asked["slots"]), (64 << 20, 1))
        self.assertEqual({e["name"]: e["value"] for e in asked["env"]},
                         {"A": "typed", "B": "project", "C": "file", "D": "file"})
        self.assertEqual(asked["outputs"]["globs"], ["./x"])
        self.assertFalse(self.request("--no-outputs")["outputs"]["collect"])
        done = self.gpulayer("run", "--", "sh", "-c", "echo $B $OMP_NUM_THREADS", cwd=self.folder)
        self.assertEqual(done.stdout, b"project 2\n")

    def test_a_dry_run_says_where_defaults_come_from(self) -> None:
        below = self.folder / "deep" / "er"
        below.mkdir(parents=True)
        (self.folder / "top.txt").write_text("x")
        self.write('[tool.gpulayer]\nsource = "."\nmemory = "64MiB"\n')
        said = self.gpulayer("submit", "--dry-run", cwd=below)
        self.assertIn(b"gpulayer: defaults of %s: memory, source\n" % bytes(self.folder / "pyproject.toml"),
                      said.stderr)
        self.assertIn(b"top.txt", said.stdout)
        # The folder that ships is where it is looked for, not the current one.
        said = self.gpulayer("submit", "--dry-run", "--source", str(below))
        self.assertIn(b"/pyproject.toml: memory\n", said.stderr)
        self.assertNotIn(b"top.txt", said.stdout)
        self.assertNotIn(b"defaults", self.gpulayer("submit", "--dry-run", "--source", ".").stderr)
        done = self.gpulayer("submit", "--", "ls", cwd=below)
        self.assertIn(b"top.txt", done.stdout)
        self.assertEqual(self.gpulayer("submit", "--no-source", "--", "ls", cwd=below).stdout, b"")

    def test_mistakes_are_wrong_usage_with_their_line(self) -> None:
        for text, wanted in (("memry = '4GiB'", '2: "memry" is no default'), ("slots = '4'", "2: slots must be"),
                             ("memory = 'much'", "2: --memory: "), ("slots = 0", "2: --slots: at least 1"),
                             ("slots = 99999999999", "2: --slots"), ("time = '5'", "2: --time: "),
                             ("output = ['']", "2: --output: it is empty"), ("source = '~/x'", "2: --source: "),
                             ("source = 'nowhere'", "2: --source: "), ("env-file = ['no']", "2: --env-file: "),
                             ("nodes = 2", '2: "nodes" is no default')):
            self.write(f"[tool.gpulayer]\n{text}\n")
            for verb in ("submit", "run"):
                done = self.gpulayer(verb, "--", "true", code=2, cwd=self.folder)
                self.assertIn(f"gpulayer: {self.folder}/pyproject.toml:{wanted}", done.stderr.decode(), text)
        self.gpulayer("ps", cwd=self.folder)

    def test_a_refusal_says_what_was_not_typed(self) -> None:
        self.write('[tool.gpulayer]\nmemory = "900TiB"\nlabel = {disk = "fast"}\n')
        done = self.gpulayer("submit", "--", "true", code=125, cwd=self.folder)
        self.assertIn(b"/pyproject.toml: label, memory\n", done.stderr)
        # The private server's worker has no labels.
        self.assertEqual(self.gpulayer("run", "--memory", "1MiB", "--", "echo", "x", cwd=self.folder).stdout, b"x\n")

    def test_a_target_is_said(self) -> None:
        self.write('[tool.gpulayer]\ntarget = "local"\n')
        done = self.gpulayer("submit", "--", "sh", "-c", "echo $GPULAYER_JOB_ID", cwd=self.folder)
        self.assertEqual(done.stdout, b"1\n")
        self.assertIn(b"this runs here, alone, as ", done.stderr)
        before = json.loads(self.gpulayer("ps", "--json").stdout)["items"]
        self.gpulayer("submit", "--target", "here", "--", "true", cwd=self.folder)
        self.gpulayer("submit", "--", "true", cwd=self.folder, env=self.home.env | {"GPULAYER_TARGET": "here"})
        self.assertEqual(len(json.loads(self.gpulayer("ps", "--json").stdout)["items"]), len(before) + 2)
        self.gpulayer("submit", "-d", "--", "true", code=2, cwd=self.folder)


if __name__ == "__main__":
    unittest.main(verbosity=2)
