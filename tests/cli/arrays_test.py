#!/usr/bin/env python3
import json
import os
import re
import subprocess
import unittest

from programs import CLI, PATIENCE, Up, eventually


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
        self.assertRegex(said, r"`gpulayer job show \d+ --state failed`")
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
        for words, tasks in ((("--state", "failed"), [8]), (("--from", "6"), [8, 11]), (("--from", "12"), [])):
            shown = json.loads(self.gpulayer("job", "show", job, *words, "--json").stdout)
            self.assertEqual([task["index"] for task in shown["tasks"]], tasks)
        table = self.gpulayer("job", "show", job).stdout.decode()
        self.assertRegex(table, rf"(?m)^{job}\.8#1 +failed ")
        self.assertRegex(table, rf"(?m)^{job}\.5#1 +succeeded ")

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

    def test_all_logs_where_nobody_reads(self) -> None:
        said = ["sh", "-c", "echo out; echo err >&2"]
        with open("/dev/full", "wb") as full:
            done = subprocess.run([CLI, "submit", "--name", "unread", "--array", "0-1", "--all-logs", "--", *said],
                                  stdout=subprocess.PIPE, stderr=full, env=self.home.env, cwd=self.home.cwd,
                                  timeout=PATIENCE)
            self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, 2), done)
            job = json.loads(self.gpulayer("job", "list", "--name", "unread", "--json").stdout)["items"][0]["id"]
            done = subprocess.run([CLI, "job", "attach", str(job), "--all-logs"], stdout=full, stderr=subprocess.PIPE,
                                  env=self.home.env, cwd=self.home.cwd, timeout=PATIENCE)
        self.assertEqual(done.returncode, 125, done)
        self.assertIn(b"standard output: No space left on device; job %d is over" % job, done.stderr)

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
        self.assertIn("cancelling 1 task", self.gpulayer("cancel", f"{job}.50").stdout.decode())
        self.assertIn("cancelling 99 tasks", self.gpulayer("cancel", "--now", job).stdout.decode())
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
        done = self.gpulayer("submit", "--each", "one", "--", "sh", "-c", "echo {}", code=2)
        self.assertIn('"$GPULAYER_ITEM"', done.stderr.decode())


if __name__ == "__main__":
    unittest.main(verbosity=2)
