#!/usr/bin/env python3
import json
import os
import shutil
import subprocess
import unittest

from programs import BIN, CLI, PATIENCE, Up


class Verbs(Up):
    """What the other verbs print."""

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

    @unittest.skipUnless(shutil.which("fish"), "there is no fish here")
    def test_completions_of_fish(self) -> None:
        script = self.home.path / "gpulayer.fish"
        script.write_bytes(self.gpulayer("completion", "fish").stdout)
        here = self.home.path / "fish"
        (here / "some-folder").mkdir(parents=True)
        (here / "some-file").touch()
        env = self.home.env | {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(here)}
        for typed, wanted in (
                ("job l", "list|logs"), ("job list ", ""), ("job list --sta", "--state"), ("sub", "submit"),
                ("job show 7 --js", "--json"), ("target use ", ""), ("submit --target ", "here|local|remote"),
                ("submit --source so", "some-folder/"), ("submit --env-file so", "some-file|some-folder/"),
                ("submit --source some-folder --mem", "--memory"), ("submit so", ""), ("submit -- cat so", "some-file|some-folder/"),
                ("submit -- cat --mem", ""), ("token create --role c", "client"), ("submit --worker ", self.worker()),
                ("completion z", "zsh")):
            done = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C 'gpulayer {typed}'"],
                                  capture_output=True, text=True, timeout=PATIENCE, cwd=here, env=env)
            found = sorted(line.split("\t")[0] for line in done.stdout.splitlines())
            self.assertEqual(found, sorted(wanted.split("|")) if wanted else [], (typed, done))


if __name__ == "__main__":
    unittest.main(verbosity=2)
