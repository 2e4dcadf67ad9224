"""scripts/test_list.py finds the test that no build file names."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import test_list  # noqa: E402


class TestList(unittest.TestCase):
    def test_the_project_itself_is_complete(self) -> None:
        self.assertEqual(test_list.unlisted(ROOT), [])

    def test_a_forgotten_test_is_named(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            room = pathlib.Path(folder, "tests", "room")
            room.mkdir(parents=True)
            (room / "CMakeLists.txt").write_text("gpulayer_test(room SOURCES a_test.cc)  # b_test.cc\n")
            for name in ("a_test.cc", "b_test.cc", "aa_test.cc"):
                (room / name).touch()
            self.assertEqual(test_list.unlisted(pathlib.Path(folder)),
                             ["tests/room/aa_test.cc", "tests/room/b_test.cc"])


if __name__ == "__main__":
    unittest.main()
