#!/usr/bin/env python3
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import unittest

from programs import CLI, Home, PATIENCE, eventually


class Alone(unittest.TestCase):
    """Cases with a server of their own, or none."""

    def setUp(self) -> None:
        self.home = Home()
        self.addCleanup(self.home.close)

    def test_no_server(self) -> None:
        done = self.home.run("submit", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"run `gpulayer up` or `gpulayer login`", done.stderr)
        self.home.env["GPULAYER_TARGET"] = "local"
        done = self.home.run("submit", "--detach", "--", "true")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn(b"cannot be left", done.stderr)
        del self.home.env["GPULAYER_TARGET"]
        self.assertEqual(self.home.run("ps").returncode, 1)
        self.assertRegex(self.home.run("down").stdout, rb"^nothing was up here, in \S+/data\n$")

    def test_down_leaves_nothing_and_up_starts_again_what_died(self) -> None:
        up = ("up", "--listen", "127.0.0.1:0")
        self.assertEqual(self.home.run(*up).returncode, 0)
        data = self.home.path / "data"
        record = json.loads((data / "daemons.json").read_text())
        pids = [record["server_process"]["pid"], record["worker_process"]["pid"]]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            eventually(lambda pid=pid: not pathlib.Path(f"/proc/{pid}").exists(), "the daemon's end")
            done = self.home.run("up")
            self.assertEqual(done.returncode, 0, done)
            self.assertRegex(done.stdout, rb"^started the (server|worker) again")
        self.assertEqual(self.home.run("submit", "--", "true").returncode, 0)
        begin = time.monotonic()
        self.assertEqual(self.home.run("down").returncode, 0)
        self.assertLess(time.monotonic() - begin, 15)

        def left() -> list:
            mark = str(data).encode()
            found = []
            for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    if mark in process.read_bytes():
                        found.append(process)
                except OSError:
                    pass
            return found

        self.assertEqual(left(), [])
        # What knows the server finds it where it was.
        record = json.loads((data / "daemons.json").read_text())
        self.assertEqual(record["listen"], "127.0.0.1:0")
        self.assertRegex(self.home.run("down").stdout, rb"^nothing was up here, in \S+/data\n$")
        self.assertEqual(self.home.run("up").returncode, 0)
        self.assertEqual(json.loads((data / "daemons.json").read_text())["listen"], "127.0.0.1:0")
        done = self.home.run("join")
        self.assertIn(b"a server is up here already", done.stderr)

    def daemons(self) -> "list[str]":
        """The command lines of what lives of this home."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                argv = path.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "gpulayer-" in argv[0] and any(a.startswith(str(self.home.path / "data")) for a in argv):
                found.append(" ".join(argv))
        return found

    def test_an_up_that_is_killed_at_any_step_leaves_nothing_that_down_does_not_stop(self) -> None:
        for point in ("after_save:1", "before_start:1", "after_start:1", "after_save:2",
                      "before_start:2", "after_start:2", "after_save:3"):
            name, times = point.split(":")
            fault = {"GPULAYER_FAULT": f"daemons.{name}=kill:{times}"}
            done = self.home.run("up", "--listen", "127.0.0.1:0", env=self.home.env | fault)
            self.assertEqual(done.returncode, -signal.SIGKILL, (point, done))
            done = self.home.run("down")
            self.assertEqual((done.returncode, self.daemons()), (0, []), (point, done))
            # Or the next `up` goes on where that one was.
            self.home.run("up", "--listen", "127.0.0.1:0", env=self.home.env | fault)
            done = self.home.run("up", "--listen", "127.0.0.1:0")
            self.assertEqual(done.returncode, 0, (point, done))
            self.assertEqual(len(self.daemons()), 3, (point, done))
            self.assertEqual(self.home.run("down").stdout, b"stopped server and worker\n", point)
            self.assertEqual(self.daemons(), [], point)

    def test_a_server_that_had_too_many_connections_takes_new_ones(self) -> None:
        done = subprocess.run(["sh", "-c", 'ulimit -n 100; exec "$@"', "sh", CLI, "up", "--listen", "127.0.0.1:0"],
                              cwd=self.home.cwd, env=self.home.env, capture_output=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done)
        token = self.home.run("token", "create", "--role", "client").stdout.decode().split()[-1]
        host, port = json.loads(self.home.run("status", "--json").stdout)["addresses"][0].rsplit(":", 1)
        far = Home()
        self.addCleanup(far.close)
        idle = [socket.create_connection((host, int(port))) for _ in range(300)]
        # Files can be opened all the same.
        self.assertEqual(self.home.run("submit", "--", "true").returncode, 0)
        for one in idle:
            one.close()
        done = far.run("login", f"{host}:{port}", "--token", token)
        self.assertEqual(done.returncode, 0, done)

    def test_a_copy_of_a_data_directory_is_not_the_one_that_is_up(self) -> None:
        self.assertEqual(self.home.run("up", "--listen", "127.0.0.1:0", "--slots", "1").returncode, 0)
        copy = self.home.path / "copy"
        subprocess.run(["cp", "-a", self.home.path / "data", copy], check=True)
        said = self.home.run("down", "--data-dir", str(copy)).stdout
        self.assertEqual(said.decode(), f"nothing was up here, in {copy}\n")
        env = self.home.env | {"GPULAYER_DATA_DIR": str(copy)}
        self.assertEqual(self.home.run("status", env=env).returncode, 1)
        self.assertEqual(self.home.run("submit", "--", "true").returncode, 0)
        # What was moved starts where it is now, and not where it was.
        self.assertEqual(self.home.run("down").returncode, 0)
        moved = self.home.path / "moved"
        copy.rename(moved)
        self.home.env["GPULAYER_DATA_DIR"] = str(moved)
        done = self.home.run("up")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.home.run("submit", "--", "true").returncode, 0)
        self.assertFalse(copy.exists())
        worker = json.loads((moved / "daemons.json").read_text())["worker_process"]["pid"]
        self.assertIn(str(moved).encode(), pathlib.Path(f"/proc/{worker}/cmdline").read_bytes().split(b"\0"))

    def test_down_by_another_name_ends_the_jobs_of_a_worker_that_died(self) -> None:
        self.assertEqual(self.home.run("up", "--listen", "127.0.0.1:0").returncode, 0)
        (self.home.path / "link").symlink_to("data")
        job = self.home.start("submit", "--", "sh", "-c", "echo $$; exec sleep 600")
        pid = int(job.stdout.readline())
        worker = json.loads((self.home.path / "data/daemons.json").read_text())["worker_process"]["pid"]
        os.kill(worker, signal.SIGKILL)
        done = self.home.run("down", "--data-dir", str(self.home.path / "link"))
        self.assertEqual(done.returncode, 0, done)
        eventually(lambda: not pathlib.Path(f"/proc/{pid}").exists(), "the job's end")
        job.kill()
        job.communicate()

    def test_two_at_once_wait_for_each_other(self) -> None:
        ups = [self.home.start("up", "--listen", "127.0.0.1:0") for _ in range(2)]
        ends = [up.communicate(timeout=60) for up in ups]
        self.assertEqual([up.returncode for up in ups], [0, 0], ends)

    def test_up_after_a_server_that_is_ending_starts_it_again(self) -> None:
        self.assertEqual(self.home.run("up", "--listen", "127.0.0.1:0").returncode, 0)
        for _ in range(5):
            record = json.loads((self.home.path / "data/daemons.json").read_text())
            os.kill(record["server_process"]["pid"], signal.SIGTERM)
            done = self.home.run("up")
            self.assertEqual(done.returncode, 0, done)
            self.assertIn(b"started the server again", done.stdout)

    def test_a_login_survives_a_server_that_was_killed(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.assertEqual(self.home.run("up", "--listen", address).returncode, 0)
        token = self.home.run("token", "create", "--role", "client").stdout.decode().split()[-1]
        far = Home()
        self.addCleanup(far.close)
        self.assertEqual(far.run("login", address, "--token", token).returncode, 0)
        go = self.home.path / "go"
        follow = far.start("submit", "--", "sh", "-c",
                           f"echo one; until [ -e {go} ]; do sleep 0.05; done; echo two; exit 9")
        self.assertEqual(follow.stdout.readline(), b"one\n")
        os.kill(json.loads((self.home.path / "data/daemons.json").read_text())["server_process"]["pid"], signal.SIGKILL)
        self.assertEqual(self.home.run("up").returncode, 0)
        go.touch()
        out, err = follow.communicate(timeout=60)
        self.assertEqual((out, follow.returncode), (b"two\n", 9), err)

    def test_down_says_what_it_interrupts(self) -> None:
        self.assertEqual(self.home.run("up", "--listen", "127.0.0.1:0").returncode, 0)
        done = self.home.run("down", "--json")
        self.assertEqual((json.loads(done.stdout)["stopped"], done.stderr), (["server", "worker"], b""))
        self.assertEqual(self.home.run("up", "--listen", "127.0.0.1:0").returncode, 0)
        job = self.home.run("submit", "-d", "--", "sleep", "600").stdout.decode().strip()
        eventually(lambda: json.loads(self.home.run("job", "show", job, "--json").stdout)["state"] == "running", "runs")
        self.assertIn(b"1 task was running here: begins again", self.home.run("down").stderr)
        self.assertEqual(self.home.run("up").returncode, 0)
        eventually(lambda: json.loads(self.home.run("job", "show", job, "--json").stdout)["state"] == "running", "again")
        self.assertEqual(self.home.run("job", "cancel", "--now", job).returncode, 0)

    def test_up_in_the_foreground_is_for_what_is_not_up(self) -> None:
        self.assertEqual(self.home.run("up", "--listen", "127.0.0.1:0").returncode, 0)
        done = self.home.run("up", "--foreground")
        self.assertEqual((done.returncode, done.stdout), (2, b""), done)
        self.assertIn(b"it is up already", done.stderr)
        self.assertEqual(self.home.run("status").returncode, 0)
        self.assertEqual(self.home.run("down").returncode, 0)
        front = self.home.start("up", "--foreground")
        self.assertRegex(front.stdout.readline(), rb"^GPUlayer is up")
        self.assertEqual(self.home.run("down").returncode, 0)
        err = front.communicate(timeout=PATIENCE)[1]
        self.assertEqual((front.returncode, err), (0, b"gpulayer: stopped by `gpulayer down`\n"))

    def test_no_worker_is_kept_until_one_is_asked_for(self) -> None:
        def worker() -> bool:
            return json.loads((self.home.path / "data/daemons.json").read_text())["worker"]

        self.assertEqual(self.home.run("up", "--listen", "127.0.0.1:0", "--no-worker").returncode, 0)
        done = self.home.run("up", "--slots", "3")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn(b"with other options: it has no worker", done.stderr)
        self.assertEqual(self.home.run("down").returncode, 0)
        self.assertIn(b"server only", self.home.run("up").stdout)
        self.assertFalse(worker())
        self.assertEqual(self.home.run("down").returncode, 0)
        self.assertEqual(self.home.run("up", "--worker").returncode, 0)
        self.assertTrue(worker())

    def test_a_folder_that_is_named_is_told_to_other_commands(self) -> None:
        other = str(self.home.path / "other")
        done = self.home.run("up", "--listen", "127.0.0.1:0", "--no-worker", "--data-dir", other)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(f"export GPULAYER_DATA_DIR={other}".encode(), done.stderr)
        self.assertEqual(self.home.run("down", "--data-dir", other).returncode, 0)

    def test_down_ends_a_server_that_hangs(self) -> None:
        self.assertEqual(self.home.run("up", "--listen", "127.0.0.1:0").returncode, 0)
        record = json.loads((self.home.path / "data/daemons.json").read_text())
        os.kill(record["server_process"]["pid"], signal.SIGSTOP)
        begin = time.monotonic()
        done = self.home.run("down")
        self.assertLess(time.monotonic() - begin, 10.5)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"stopped server and worker\n", b""), done)

    def test_an_up_that_fails_leaves_jobs_alone(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.assertEqual(self.home.run("up", "--listen", f"127.0.0.1:{port}").returncode, 0)
        job = self.home.run("submit", "-d", "--", "sh", "-c", "touch ran; sleep 3; echo whole").stdout.decode().strip()
        eventually(lambda: json.loads(self.home.run("job", "show", job, "--json").stdout)["state"] == "running", "runs")
        record = json.loads((self.home.path / "data/daemons.json").read_text())
        os.kill(record["server_process"]["pid"], signal.SIGKILL)
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

            def take() -> bool:
                try:
                    taken.bind(("127.0.0.1", port))
                except OSError:  # the killed server has not quite gone
                    return False
                return True

            eventually(take, "the port is free")
            taken.listen()
            self.assertEqual(self.home.run("up").returncode, 1)
        done = self.home.run("up")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.home.run("job", "wait", job).returncode, 0)
        shown = json.loads(self.home.run("job", "show", job, "--json").stdout)
        self.assertEqual(len(shown["tasks"][0]["attempts"]), 1, shown)

    def test_up_starts_a_server_again_that_lost_its_socket(self) -> None:
        self.assertEqual(self.home.run("up", "--listen", "127.0.0.1:0").returncode, 0)
        endpoint = json.loads((self.home.path / "data/server/endpoint.json").read_text())
        os.unlink(endpoint["socket"])
        done = self.home.run("up")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b"started the server again", done.stdout)
        self.assertEqual(self.home.run("submit", "--", "true").returncode, 0)

    def test_a_data_directory_that_is_not_text(self) -> None:
        done = self.home.run("up", "--data-dir", os.fsencode(self.home.path) + b"/d\xff")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"is not printable UTF-8", done.stderr)

    def test_a_port_in_use_and_nothing_half_started(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            done = self.home.run("up", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
            self.assertEqual(done.returncode, 1, done)
            self.assertIn(b"in use", done.stderr)
            self.assertFalse((self.home.path / "data/daemons.json").exists())

    def test_run_folders_of_two_servers_and_local_runs_never_mix(self) -> None:
        other = Home()
        self.addCleanup(other.close)
        other.cwd = self.home.cwd
        make = ("--", "sh", "-c", "echo $GPULAYER_JOB_ID > made")
        for home in (self.home, other):
            self.assertEqual(home.run("up", "--listen", "127.0.0.1:0").returncode, 0)
            done = home.run("submit", *make)
            self.assertEqual(done.returncode, 0, done)
            # The folder that is expected needs no word in a pipe; another one does.
            self.assertEqual(b"outputs in" in done.stderr, home is other, done)
        self.assertRegex(done.stderr, rb"^gpulayer: outputs in \./gpulayer_runs/1-[0-9a-f]{6}: 1 file, 2B\n$")
        self.assertRegex(other.run("job", "result", "1", "--download").stdout, rb"gpulayer_runs/1-[0-9a-f]{6}\n")
        done = other.run("job", "result", "1", "--download", "--to", str(other.path / "to"), "--json")
        self.assertNotIn(b"outputs in", done.stderr)
        done = self.home.run("run", *make)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b"gpulayer_runs/local-1:", done.stderr)
        folders = sorted(p.name for p in (self.home.cwd / "gpulayer_runs").iterdir() if p.is_dir())
        self.assertEqual(len(folders), 3, folders)
        self.assertEqual((folders[0], folders[2]), ("1", "local-1"))
        self.assertRegex(folders[1], r"^1-[0-9a-f]{6}$")

    def test_a_mistake_in_worker_toml_is_said_by_resources_detect(self) -> None:
        (self.home.path / "data").mkdir()
        (self.home.path / "data/worker.toml").write_text("slots = 3\n")
        done = self.home.run("resources", "detect")
        self.assertEqual((done.returncode, done.stdout), (1, b""), done)
        self.assertIn(b"worker.toml:1: unknown key 'slots'", done.stderr)

    def test_in_the_foreground_until_a_daemon_dies(self) -> None:
        for name in ("server", "worker"):
            up = self.home.start("up", "--foreground", "--listen", "127.0.0.1:0")
            self.assertIn(b"GPUlayer is up", up.stdout.readline())
            record = json.loads((self.home.path / "data/daemons.json").read_text())
            os.kill(record[f"{name}_process"]["pid"], signal.SIGKILL)
            err = up.communicate(timeout=PATIENCE)[1]
            self.assertEqual(up.returncode, 1, err)
            self.assertIn(b"the %s has ended" % name.encode(), err)
            self.assertIn(b"nothing was up here", self.home.run("down").stdout)

    def test_in_the_foreground_until_a_signal(self) -> None:
        up = self.home.start("up", "--foreground", "--listen", "127.0.0.1:0")
        self.assertIn(b"GPUlayer is up", up.stdout.readline())
        up.send_signal(signal.SIGTERM)
        up.communicate(timeout=PATIENCE)
        self.assertEqual(up.returncode, 0)
        self.assertRegex(self.home.run("down").stdout, rb"^nothing was up here, in \S+/data\n$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
