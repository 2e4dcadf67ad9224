"""docs/faults.md names tests for each kind of fault, and they are there."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Faults(unittest.TestCase):
    def test_each_kind_names_tests_that_exist(self) -> None:
        existing: set[str] = set()
        for test in ROOT.glob("tests/**/*_test.cc"):
            for suite, name in re.findall(r"^(?:RC_GTEST_PROP|TEST(?:_[FP])?)\(\s*(\w+),\s*(\w+)", test.read_text(), re.M):
                existing.add(f"{suite}.{name}")
        text = (ROOT / "docs/faults.md").read_text()
        kinds = list(re.finditer(r"^\*\*(F\d\d) .*?(?=^\*\*F|^## |\Z)", text, re.M | re.S))
        self.assertGreater(len(kinds), 10)
        for match in kinds:
            named = re.findall(r"`(\w+Test\.\w+)`", match[0])
            self.assertTrue(named, f"{match[1]} names no test")
            for name in named:
                self.assertIn(name, existing, f"{match[1]} names a test that is not there")


if __name__ == "__main__":
    unittest.main()
