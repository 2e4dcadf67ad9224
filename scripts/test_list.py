#!/usr/bin/env python3
"""Says which `*_test.cc` or `*_test.py` below tests/ no CMakeLists.txt names, so that no test is forgotten in silence.

Usage: test_list.py [ROOT]. Exit 1 with one line a file.
"""

import pathlib
import re
import sys


def unlisted(root: pathlib.Path) -> list[str]:
    """Paths relative to `root` of the tests that the CMakeLists.txt of their own folder, or of one above, does not name."""
    missing = []
    for test in sorted(root.glob("tests/**/*_test.*")):
        if test.suffix not in (".cc", ".py"):
            continue
        for folder in test.parents:
            name = re.escape(test.relative_to(folder).as_posix())
            lists = folder / "CMakeLists.txt"
            if lists.is_file() and re.search(rf"(?<![\w./-]){name}(?![\w.-])", _code(lists)):
                break
            if folder == root / "tests":
                missing.append(test.relative_to(root).as_posix())
                break
    return missing


def _code(lists: pathlib.Path) -> str:
    text = re.sub(r"#.*", "", lists.read_text())
    return text.replace("${CMAKE_CURRENT_SOURCE_DIR}/", "")


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    missing = unlisted(root)
    for path in missing:
        print(f"{path}: in no CMakeLists.txt, so it is never run: add it to the gpulayer_test() of its folder")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
