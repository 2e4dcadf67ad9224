#!/usr/bin/env python3
import fcntl
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import termios
import threading
import time
import unittest

from programs import CLI, Home, PATIENCE, SlowRelay, Up, eventually


class Doors(Up):
    """Who gets in, and what is said to the others."""

    def login(self, token: str, address: "str | None" = None, code: int = 0) -> str:
        begin = time.monotonic()
        done = self.home.run("login", address or self.address(), "--token", "-", input=token.encode() + b"\n",
                             stdin=None)
        self.assertEqual(done.returncode, code, done)
        self.assertLess(time.monotonic() - begin, 10)
        return done.stderr.decode()

    def test_a_login_submits_and_is_forgotten(self) -> None:
        self.login(self.token("client"))
        self.assertEqual(self.gpulayer("submit", "--", "echo", "x").stdout, b"x\n")
        self.gpulayer("token", "create", "--role", "admin", code=1)
        self.gpulayer("logout")
        self.assertIn("admin", self.gpulayer("status").stdout.decode())
        tokens = json.loads(self.gpulayer("token", "list", "--json").stdout)["items"]
        logins = [t for t in tokens if t["kind"] == "credential" and t["role"] == "client"]
        self.assertTrue(logins and all(t["revoked_at"] for t in logins), logins)

    def test_an_admins_login_is_an_admins(self) -> None:
        token = self.token("admin")
        done = self.gpulayer("login", self.address(), "--token", token)
        try:
            self.assertIn(b"(admin)", done.stdout)
            tokens = json.loads(self.gpulayer("token", "list", "--json", "--target", "remote").stdout)["items"]
            mine = [t for t in tokens if t["parent"] == token.split(".")[2]]
            self.assertEqual([(t["role"], t["kind"]) for t in mine], [("admin", "credential")])
            self.gpulayer("token", "revoke", mine[0]["id"], "--target", "here")
            self.assertIn(b"revoked", self.gpulayer("token", "list", "--target", "remote", code=1).stderr)
        finally:
            self.gpulayer("logout")

    def test_a_login_closes_the_folder_of_logins(self) -> None:
        folder = self.home.path / "config/targets"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        said = self.login(self.token("client"))
        self.assertEqual(said, f"gpulayer: {folder} was open to other accounts: closed to them\n")
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        self.gpulayer("logout")

    def test_a_login_that_is_revoked_while_a_job_is_followed(self) -> None:
        token = self.token("client")
        self.login(token)
        client = self.home.start("submit", "--", "sh", "-c", "echo started; exec sleep 600")
        self.assertEqual(client.stdout.readline(), b"started\n")
        done = self.gpulayer("token", "revoke", token.split(".")[2], "--target", "here")
        self.assertIn(b"revoked " + token.split(".")[2].encode(), done.stdout)
        _, err = client.communicate(timeout=PATIENCE)
        self.assertEqual(client.returncode, 125, err)
        found = re.search(rb"job (\d+) goes on; follow it with `gpulayer job attach \1` after a new `gpulayer login`", err)
        assert found, err
        self.gpulayer("logout")
        self.gpulayer("job", "cancel", "--now", found.group(1).decode())

    def test_a_link_with_a_second_of_delay_each_way(self) -> None:
        host, port = self.address().rsplit(":", 1)
        with SlowRelay((host, int(port)), 1.0) as relay:
            self.gpulayer("login", relay.address, "--token", self.token("client"))
            try:
                self.assertIn(b"online", self.gpulayer("worker", "list").stdout)
            finally:
                self.gpulayer("logout")

    def test_names_that_no_server_takes(self) -> None:
        for args in (["--name", "a\nb"], ["--name", b"\xff"], ["--name", "x" * 300], ["--zone", "a\nb"],
                     ["--region", "a\x1b"], ["--label", "k=" + "x" * 300]):
            done = self.gpulayer("join", self.address(), "--token", "gl1.nobody", *args, code=2)
            self.assertIn(b"UTF-8", done.stderr)

    def test_a_revoked_token_takes_its_logins_along(self) -> None:
        token = self.token("client")
        self.login(token)
        self.assertEqual(self.gpulayer("submit", "--", "echo", "x").stdout, b"x\n")
        self.gpulayer("token", "revoke", token.split(".")[2], "--target", "here")
        self.assertIn(b"revoked", self.gpulayer("submit", "--", "true", code=125).stderr)
        self.gpulayer("logout")

    def test_a_token_without_end_says_so(self) -> None:
        self.assertIn(b"good until it is revoked", self.gpulayer("token", "create", "--role", "client").stderr)
        self.assertEqual(self.gpulayer("token", "create", "--role", "client", "--expires", "1d").stderr, b"")

    def test_tokens_that_are_no_good(self) -> None:
        good = self.token("client")
        parts = good.split(".")
        self.assertIn("not a token", self.login("rubbish", code=2))
        wrong = self.login(".".join([*parts[:3], "0" * len(parts[3]), parts[4]]), code=1)
        other = self.login(".".join([*parts[:4], "0" * 64]), code=1)
        self.assertIn("not the server that this token was made by", other)
        self.gpulayer("token", "revoke", parts[2])
        revoked = self.login(good, code=1)
        self.assertIn("revoked", revoked)
        short = self.token("client", "--expires", "1ms")
        time.sleep(0.05)
        expired = self.login(short, code=1)
        self.assertIn("expired", expired)
        worker = self.login(self.token("worker"), code=1)
        self.assertIn("worker", worker)
        self.assertEqual(len({wrong, other, revoked, expired, worker}), 5)

    def test_a_token_that_is_missing_is_a_wrong_usage(self) -> None:
        for words, said in (
            (("login", "127.0.0.1:7461"), b"token: none was given"),
            (("login", "127.0.0.1:7461", "--token", "@nosuch"), b"a file that is here"),
            (("join", "127.0.0.1:7461", "--token", "@nosuch"), b"a file that is here"),
            (("join", "127.0.0.1:7461"), b"so it needs a token (--token). "),
            (("join",), b"so it needs an address and a token. "),
        ):
            machine = self.home.env | {"GPULAYER_DATA_DIR": str(self.home.path / "no-worker-yet")}
            self.assertIn(said, self.gpulayer(*words, code=2, env=machine).stderr)

    def test_a_token_that_is_typed_is_asked_for_and_not_shown(self) -> None:
        token = self.token("client")
        for verb in ("login", "join"):
            end = os.openpty()
            try:
                client = subprocess.Popen([CLI, verb, self.address(), "--token", "-"], cwd=self.home.cwd, stdin=end[1],
                                          env=self.home.env | {"GPULAYER_DATA_DIR": str(self.home.path / "typed")},
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                prompt = b"token (not shown): "
                self.assertEqual(client.stderr.read(len(prompt)), prompt)
                if verb == "join":
                    client.send_signal(signal.SIGINT)
                else:
                    os.write(end[0], token.encode() + b"\n")
                out, err = client.communicate(timeout=PATIENCE)
                self.assertEqual(client.returncode, -signal.SIGINT if verb == "join" else 0, (out, err))
                self.assertTrue(termios.tcgetattr(end[1])[3] & termios.ECHO, "the echo is back")
                os.write(end[1], b"|")
                self.assertNotIn(b"gl1", os.read(end[0], 4096))
            finally:
                os.close(end[0])
                os.close(end[1])
        self.gpulayer("logout")

    def test_addresses_that_are_no_good(self) -> None:
        token = self.token("client")
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
        self.assertIn("nobody listens", self.login(token, f"127.0.0.1:{port}", code=1))
        with socket.socket() as plain:
            plain.bind(("127.0.0.1", 0))
            plain.listen()

            def answer() -> None:
                connection, _ = plain.accept()
                with connection:
                    connection.recv(100)
                    connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

            thread = threading.Thread(target=answer)
            thread.start()
            self.assertIn("without TLS", self.login(token, f"127.0.0.1:{plain.getsockname()[1]}", code=1))
            thread.join()
        with socket.socket() as full, socket.socket() as first, socket.socket() as second:
            full.bind(("127.0.0.1", 0))
            full.listen(0)  # who comes when the queue is full hears nothing
            for waiting in (first, second):
                waiting.setblocking(False)
                waiting.connect_ex(full.getsockname())
            self.assertIn("does not answer", self.login(token, f"127.0.0.1:{full.getsockname()[1]}", code=1))

    def test_another_server_at_the_address_of_a_login(self) -> None:
        self.login(self.token("client"))
        try:
            other = Home()
            try:
                done = other.run("up", "--listen", "127.0.0.1:0", "--no-worker", "--json")
                self.assertEqual(done.returncode, 0, done)
                address = json.loads(done.stdout)["addresses"][0]
                self.assertIn(b"server only; for a worker too:", other.run("up").stdout)
                file = next((self.home.path / "config/targets").glob("*.json"))
                login = json.loads(file.read_text())
                file.write_text(json.dumps(login | {"address": address}))
                refused = self.gpulayer("submit", "--", "true", code=125)
                self.assertIn(b"not the server this login was made with", refused.stderr)
                self.assertTrue(all(line.startswith(b"gpulayer: ") for line in refused.stderr.splitlines()), refused)
            finally:
                other.close()
        finally:
            self.gpulayer("logout")

    def test_a_join_that_fails_leaves_the_machine_where_it_was(self) -> None:
        second = Home()
        other = Home()
        try:
            done = second.run("join", self.address(), "--token", self.token("worker"), "--name", "stays")
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(second.run("down").returncode, 0)
            done = other.run("up", "--listen", "127.0.0.1:0", "--no-worker", "--json")
            address = json.loads(done.stdout)["addresses"][0]
            token = other.run("token", "create", "--role", "worker").stdout.decode().strip()
            with open(second.path / "data/worker/worker.lock", "r+") as lock:  # its worker cannot start
                fcntl.flock(lock, fcntl.LOCK_EX)
                done = second.run("join", address, "--token", token)
            self.assertEqual(done.returncode, 1, done)
            done = second.run("join")
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(done.stdout, f"this machine is worker stays of {self.address()}\n".encode())
            self.assertEqual(len(list((second.path / "data/join").iterdir())), 1)
        finally:
            second.close()
            other.close()

    def test_a_second_machine_joins(self) -> None:
        second = Home()
        try:
            done = second.run("join", self.address(), "--token", self.token("worker"), "--name", "second", "--slots", "9")
            self.assertEqual(done.returncode, 0, done)
            done = self.gpulayer("submit", "--slots", "9", "--", "sh", "-c", "echo $GPULAYER_WORKER")
            self.assertEqual(done.stdout, b"second\n")
            for again in ((), (self.address(), "--slots", "9")):
                done = second.run("join", *again)
                self.assertEqual(done.returncode, 0, done)
                self.assertEqual(done.stdout, f"this machine is already worker second of {self.address()}\n".encode())
            done = second.run("join", self.address(), "--slots", "3")
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(b"already, with other options: it runs with --slots 9. Run `gpulayer down` first", done.stderr)
            self.assertEqual(second.run("join", "--foreground").returncode, 2)
            self.assertIn(b"a worker of", second.run("join", "127.0.0.2:1").stderr)
            # The machine starts anew: its worker is told to go on, and is what it was.
            record = json.loads((second.path / "data/daemons.json").read_text())
            os.kill(record["worker_process"]["pid"], signal.SIGKILL)
            refused = second.run("up", "--listen", "127.0.0.1:0")
            self.assertEqual(refused.returncode, 1, refused)
            self.assertIn(b"`gpulayer join` starts it again", refused.stderr)
            done = second.run("join")
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(done.stdout, f"this machine is worker second of {self.address()}\n".encode())
            self.assertEqual(second.run("down").returncode, 0)
            done = second.run("join", self.address(), "--slots", "11")
            self.assertEqual(done.returncode, 0, done)
            done = self.gpulayer("submit", "--slots", "11", "--", "sh", "-c", "echo $GPULAYER_WORKER")
            self.assertEqual(done.stdout, b"second\n")
            self.assertEqual(second.run("down").returncode, 0)
            workers = json.loads(self.gpulayer("worker", "list", "--json").stdout)["items"]
            first = next(w["name"] for w in workers if w["name"] != "second" and w["state"] == "online")
            done = second.run("join", "--name", first)
            self.assertEqual(done.returncode, 0, done)
            self.assertIn(f"another worker that is online is named {first} too".encode(), done.stderr)
            # Its tasks are counted where nobody else would say them; the server is found where it moved to.
            job = self.gpulayer("submit", "-d", "--slots", "11", "--", "sleep", "600").stdout.decode().strip()
            eventually(lambda: json.loads(self.gpulayer("job", "show", job, "--json").stdout)["state"] == "running", "runs")
            done = second.run("down", "--json")
            self.assertEqual([json.loads(done.stdout)[key] for key in ("interrupted_tasks", "interrupted_here")], [1, 1])
            self.assertIn(b"1 task was running here: the server starts it again", done.stderr)
            self.gpulayer("job", "cancel", "--now", job)
            moved = "localhost:" + self.address().rsplit(":", 1)[1]
            done = second.run("join", moved)
            self.assertEqual((done.returncode, moved.encode() in done.stdout), (0, True), done)
            self.assertEqual(second.run("down").returncode, 0)
            done = second.run("join", "127.0.0.1:1")
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(b"for another server it needs a token", done.stderr)
            done = second.run("join")
            self.assertEqual((done.returncode, moved.encode() in done.stdout), (0, True), done)
            lost = second.run("worker", "list")
            self.assertEqual(lost.returncode, 1, lost)
            self.assertIn(f"a worker of {moved}".encode(), lost.stderr)
            for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    text = process.read_bytes()
                except OSError:
                    continue
                self.assertFalse(b"gpulayer-" in text and b"gl1." in text, text)
        finally:
            second.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
