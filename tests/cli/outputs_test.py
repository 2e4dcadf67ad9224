#!/usr/bin/env python3
import json
import os
import pathlib
import re
import subprocess
import unittest

from programs import CLI, PATIENCE, Up


class Outputs(Up):
    """What comes home, and where it goes."""

    def test_outputs_come_home_after_failure_too(self) -> None:
        source = self.home.path / "outputs-source"
        source.mkdir()
        (source / "kept").write_text("k")
        done = self.gpulayer("submit", "--source", str(source), "--name", "out", "--", "sh", "-c",
                             "echo made > made; mkdir d; echo 2 > d/two; exit 3", code=3)
        self.assertEqual(done.stdout, b"")
        job = json.loads(self.gpulayer("job", "list", "--name", "out", "--json").stdout)["items"][0]["id"]
        folder = self.home.cwd / "gpulayer_runs" / str(job)
        self.assertEqual((folder / "made").read_text(), "made\n")
        self.assertEqual((folder / "d/two").read_text(), "2\n")
        self.assertFalse((folder / "kept").exists())
        to = self.home.path / "to"
        self.gpulayer("job", "result", str(job), "--to", str(to))
        self.assertEqual((to / "made").read_text(), "made\n")
        (to / "made").write_text("mine")
        done = self.gpulayer("job", "result", str(job), "--to", str(to), code=1)
        self.assertIn(b"there with other content: made. Nothing was written.", done.stderr)
        self.assertEqual((to / "made").read_text(), "mine")

    def test_a_pattern_that_nothing_matches_is_said(self) -> None:
        done = self.gpulayer("submit", "--output", "./model.bin", "--shell", "echo w > model.bin; mkdir d; cp model.bin d")
        self.assertNotIn(b"left out", done.stderr)
        done = self.gpulayer("submit", "--name", "miss", "--output", "model.bim", "--shell", "echo w > model.bin")
        self.assertIn(b"left out model.bim: no new or changed file matches this --output\n", done.stderr)
        self.assertIn(b"left out model.bin (2B): no --output matches it\n", done.stderr)
        job = json.loads(self.gpulayer("job", "list", "--name", "miss", "--json").stdout)["items"][0]["id"]
        left = json.loads(self.gpulayer("job", "show", str(job), "--json").stdout)["tasks"][0]["outputs"]["left_out"]
        self.assertEqual([file["path"] for file in left], ["model.bim", "model.bin"])
        for wrong in ("/tmp/model.bin", "../model.bin", "~/model.bin", "model[.bin"):
            self.gpulayer("submit", "--output", wrong, "--", "true", code=2)

    def test_input_that_the_job_does_not_get_is_said(self) -> None:
        done = self.home.run("submit", "--", "wc", "-l", stdin=None, input=b"1\n2\n")
        self.assertEqual((done.returncode, done.stdout.strip()), (0, b"0"))
        self.assertIn(b"--stdin FILE", done.stderr)
        with open(self.home.path / "in", "wb+") as full:
            full.write(b"x")
            full.seek(0)
            self.assertIn(b"--stdin FILE", self.home.run("submit", "--", "true", stdin=full).stderr)
            full.seek(1)
            self.assertEqual(self.home.run("submit", "--", "true", stdin=full).stderr, b"")
        self.assertEqual(self.gpulayer("submit", "--", "true").stderr, b"")

    def test_no_place_for_outputs_is_said_before_the_work(self) -> None:
        cwd = self.home.path / "no-place"
        cwd.mkdir()
        (cwd / "gpulayer_runs").write_text("a file")
        for verb in ("submit", "run"):
            done = self.gpulayer(verb, "--", "touch", str(cwd / "ran"), code=125, cwd=cwd)
            self.assertIn(b"gpulayer_runs is no folder", done.stderr)
            self.assertFalse((cwd / "ran").exists())
        self.gpulayer("submit", "--no-outputs", "--", "true", cwd=cwd)
        self.gpulayer("submit", "-d", "--", "true", cwd=cwd)

    def test_a_limit_on_file_size_is_said(self) -> None:
        done = subprocess.run(["sh", "-c", 'ulimit -f 100; exec "$@"', "sh", CLI, "submit", "--", "sh", "-c",
                               "head -c 1000000 /dev/zero > big"], env=self.home.env, cwd=self.home.cwd,
                              capture_output=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 125, done)
        self.assertIn(b"File too large", done.stderr)

    def test_a_place_that_goes_away_meanwhile_loses_nothing(self) -> None:
        cwd = self.home.path / "going"
        cwd.mkdir()
        temporary = self.home.path / "tmp"
        temporary.mkdir()
        take = f"echo made > made; echo x > {cwd}/gpulayer_runs"
        done = self.gpulayer("submit", "--shell", take, code=125, cwd=cwd)
        found = re.search(rb"`gpulayer job result (\d+) --to DIR`", done.stderr)
        assert found, done
        to = self.home.path / "rescued"
        self.gpulayer("job", "result", found.group(1), "--to", str(to), cwd=cwd)
        self.assertEqual((to / "made").read_text(), "made\n")

        (cwd / "gpulayer_runs").unlink()
        done = self.gpulayer("run", "--shell", take, code=125, cwd=cwd,
                             env=self.home.env | {"TMPDIR": str(temporary)})
        found = re.search(rb"the outputs are in (\S+) instead", done.stderr)
        assert found, done
        self.assertEqual((pathlib.Path(os.fsdecode(found.group(1))) / "made").read_text(), "made\n")

    def test_what_was_left_out_is_in_the_text_of_the_result(self) -> None:
        job = self.gpulayer("submit", "-d", "--output-limit", "1KiB", "--shell",
                            "head -c 5000 /dev/zero > big; echo x > small").stdout.decode().strip()
        self.gpulayer("job", "wait", job)
        self.assertRegex(self.gpulayer("job", "result", job).stdout, rb"left out big \(4\.\d+KiB\): .")
        to = self.home.path / "left-out"
        self.assertIn(b"left out big", self.gpulayer("job", "result", job, "--to", str(to)).stdout)
        self.assertEqual([p.name for p in to.iterdir()], ["small"])

    def test_a_result_says_how_many_outputs_and_how_to_get_them(self) -> None:
        job = self.gpulayer("submit", "-d", "--", "sh", "-c", "echo made > made").stdout.decode().strip()
        self.gpulayer("job", "wait", job)
        self.assertIn(b"1 output, 5B: `gpulayer job result %s --download`" % job.encode(),
                      self.gpulayer("job", "result", job).stdout)
        to = self.home.path / "counted"
        self.assertIn(b"1 output, 5B, in %s" % bytes(to), self.gpulayer("job", "result", job, "--to", str(to)).stdout)

    def test_a_job_without_outputs_makes_no_folder(self) -> None:
        job = self.gpulayer("submit", "-d", "--", "true").stdout.decode().strip()
        self.gpulayer("job", "wait", job)
        to = self.home.path / "nothing"
        self.assertIn(b"no outputs", self.gpulayer("job", "result", job, "--to", str(to)).stdout)
        self.assertFalse(to.exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
