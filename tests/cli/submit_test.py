#!/usr/bin/env python3
import json
import subprocess
import time
import unittest

from programs import CLI, PATIENCE, Up


class Submit(Up):
    """What a submit sends, prints and exits with."""

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
        waits = self.gpulayer("submit", "-d", "--slots", "10000", "--wait-for-worker", "--", "true").stdout.decode().strip()
        for more in ((), ("--state", "queued")):
            shown = json.loads(self.gpulayer("job", "show", waits, *more, "--json").stdout)
            self.assertEqual([(task["index"], task["state"]) for task in shown["tasks"]], [(0, "queued")])
        self.gpulayer("job", "cancel", waits)
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
        self.assertIn(b"a folder that is here", self.gpulayer("submit", "--source", "nosuch", "--", "true", code=2).stderr)

    def test_cancel_of_a_task_that_is_not_there(self) -> None:
        job = self.gpulayer("submit", "-d", "--", "true").stdout.decode().strip()
        self.gpulayer("job", "wait", job)
        self.assertIn(b"it has no task 7", self.gpulayer("job", "cancel", job + ".7", code=1).stderr)

    def test_a_cancel_of_several_that_is_refused_says_that_none_was(self) -> None:
        job = self.gpulayer("submit", "-d", "--", "sleep", "600").stdout.decode().strip()
        self.assertIn(b"Nothing was cancelled.", self.gpulayer("job", "cancel", job, "99999", code=1).stderr)
        self.assertNotEqual(json.loads(self.gpulayer("job", "show", job, "--json").stdout)["state"], "cancelled")
        self.gpulayer("job", "cancel", job)

    def test_a_name_that_is_no_text_is_a_wrong_use(self) -> None:
        for option in (b"--zone", b"--region", b"--worker", b"--request-id", b"--name"):
            done = self.gpulayer("submit", option, b"a\xff", "--", "true", code=2)
            self.assertIn(option + b" \"a\xef\xbf\xbd\": it is not UTF-8 text", done.stderr)
        self.assertIn(b"not UTF-8", self.gpulayer("submit", "--label", b"a=\xff", "--", "true", code=2).stderr)
        for words in (("job", "list", "--user", b"\xff"), ("job", "list", "--name", b"\xff"),
                      ("token", "create", "--role", "client", "--user", b"\xff"), ("token", "revoke", b"\xff")):
            self.assertIn(b"not UTF-8", self.gpulayer(*words, code=2).stderr)

    def test_a_closed_standard_input_is_said(self) -> None:
        for words in (("submit", "--each", "-", "--", "echo", "{}"), ("login", "127.0.0.1:1", "--token", "-")):
            done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", CLI, *words], cwd=self.home.cwd,
                                  env=self.home.env, capture_output=True, timeout=PATIENCE)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(b"standard input is closed", done.stderr)

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
