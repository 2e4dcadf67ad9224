"""Violations planted in a small tree: scripts/layers.py has to find each, and nothing in a clean one."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import layers  # noqa: E402


def check(files: dict[str, str]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return layers.violations(pathlib.Path(folder))


class Layers(unittest.TestCase):
    def test_the_project_itself_is_clean(self) -> None:
        self.assertEqual(layers.violations(ROOT), [])

    def test_downward_includes_are_fine(self) -> None:
        self.assertEqual(check({
            "src/model/job.h": '#include "base/status.h"\n#include <string>\n',
            "src/server/core/core.cc": '#include "server/core/core.h"\n#include "model/job.h"\n',
            "src/server/rpc/jobs.cc": '#include <grpcpp/grpcpp.h>\n#include "server/engine.h"\n#include "wire/job.h"\n',
            "src/wire/job.h": '#include "gpulayer/v1/jobs.pb.h"\n',
            "src/cli/submit.cc": '#include "cli/output.h"\n#include "gpulayer/client.h"\n#include <nlohmann/json.hpp>\n',
            "src/server/main.cc": '#include "server/rpc/server.h"\n#include "worker/session/session.h"\n',
        }), [])

    def test_each_planted_violation_is_found(self) -> None:
        planted = {
            "base sees model": ("src/base/a.h", '#include "model/job.h"'),
            "core sees the store": ("src/server/core/a.cc", '#include "server/store/store.h"'),
            "core sees the public API": ("src/server/core/a.cc", "#include <gpulayer/client.h>"),
            "agent sees exec": ("src/worker/agent/a.cc", '#include "worker/exec/monitor.h"'),
            "wire uses gRPC": ("src/wire/a.cc", "#include <grpcpp/support/status.h>"),
            "wire uses a service": ("src/wire/a.cc", '#include "gpulayer/v1/jobs.grpc.pb.h"'),
            "store sees protobuf": ("src/server/store/a.cc", '#include "gpulayer/v1/jobs.pb.h"'),
            "engine sees rpc": ("src/server/engine.cc", '#include "server/rpc/jobs.h"'),
            "worker sees server": ("src/worker/logs/a.cc", '#include "server/blob/log_store.h"'),
            "cli sees base": ("src/cli/a.cc", '#include "base/fs.h"'),
            "cli uses gRPC": ("src/cli/a.cc", "#include <grpcpp/grpcpp.h>"),
            "the API shows base": ("include/gpulayer/a.h", '#include "base/status.h"'),
            "the API shows gRPC": ("include/gpulayer/a.h", "#include <grpcpp/grpcpp.h>"),
            "json in a header": ("src/client/a.h", "#include <nlohmann/json.hpp>"),
            "spdlog in a header": ("src/base/a.h", "#include <spdlog/spdlog.h>"),
            "SQL outside the store": ("src/server/engine.cc", "#include <sqlite3.h>"),
            "a room nobody described": ("src/attic/a.h", ""),
        }
        for name, (path, line) in planted.items():
            with self.subTest(name):
                found = check({path: "// a comment\n" + line + "\n"})
                self.assertEqual(len(found), 1, found)
                self.assertIn(path, found[0])

    def test_cli11_stays_in_one_file(self) -> None:
        files = {"src/cli/a.cc": "#include <CLI/CLI.hpp>\n"}
        self.assertEqual(check(files), [])
        files["src/cli/b.cc"] = "#include <CLI/CLI.hpp>\n"
        self.assertEqual(len(check(files)), 1)


if __name__ == "__main__":
    unittest.main()
