#!/usr/bin/env python3
"""The installed package, as a stranger finds it.

Usage: package_test.py BUILD_DIR SOURCE_DIR. Installs into a fresh prefix, then, seeing nothing but that prefix: every
public header compiles alone as C++17, the library shows gpulayer's symbols only, the programs carry their libraries, and
examples/cpp_client builds; where the daemons are built too it runs a job on a server.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def run(*args: str, **kwargs: object) -> subprocess.CompletedProcess:
    result = subprocess.run(args, capture_output=True, text=True, timeout=300, **kwargs)  # type: ignore[call-overload]
    if result.returncode != 0:
        sys.exit(f"{' '.join(args)}: exit {result.returncode}\n{result.stdout}{result.stderr}")
    return result


def check_headers(prefix: pathlib.Path, work: pathlib.Path) -> None:
    headers = sorted((prefix / "include/gpulayer").glob("*.h"))
    assert len(headers) >= 8, headers
    for header in headers:
        source = work / "header.cc"
        source.write_text(f"#include <gpulayer/{header.name}>\n#include <gpulayer/{header.name}>\n")
        run("c++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{prefix}/include",
            str(source))
        text = header.read_text()
        for word in ("grpc", "google/protobuf", "absl/", "nlohmann"):
            assert word not in text.lower(), f"{header.name} names {word}"


def check_symbols(library: pathlib.Path) -> None:
    # Names of the dynamic table that are defined here.
    out = run("nm", "-D", "-C", "--defined-only", str(library)).stdout
    names = [line.split(" ", 2)[2] for line in out.splitlines() if len(line.split(" ", 2)) == 3]
    strange = [name for name in names if not name.startswith("gpulayer::api::")]
    assert not strange, f"symbols that are not ours: {strange[:10]}"
    assert any(name.startswith("gpulayer::api::Client::Connect") for name in names), names
    soname = re.search(r"SONAME.*\[(.*)\]", run("readelf", "-d", str(library)).stdout)
    assert soname and re.fullmatch(r"libgpulayer\.so\.\d+\.\d+", soname.group(1)), soname


def check_programs(prefix: pathlib.Path, build: pathlib.Path) -> None:
    """Where the archives are installed, no program asks the machine for gRPC and its sixty libraries."""
    if "GPULAYER_CARRIED:INTERNAL=ON" not in (build / "CMakeCache.txt").read_text():
        print("the archives are not installed: programs are linked shared")
        return
    for program in ("gpulayer", "gpulayer-server", "gpulayer-worker"):
        needed = run("readelf", "-d", str(prefix / "bin" / program)).stdout
        assert not re.search(r"NEEDED.*\[lib(grpc|protobuf|absl|ssl|git2|gpulayer)", needed), needed


def check_example(prefix: pathlib.Path, source: pathlib.Path, work: pathlib.Path) -> None:
    example = work / "example"
    shutil.copytree(source / "examples/cpp_client", example)
    run("cmake", "-S", str(example), "-B", str(work / "build"), f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", str(work / "build"))
    program = str(work / "build/cpp_client")
    env = {k: v for k, v in os.environ.items() if not k.startswith("GPULAYER_")}
    env |= {"GPULAYER_DATA_DIR": str(work / "data"), "GPULAYER_CONFIG_DIR": str(work / "config")}
    alone = subprocess.run([program], capture_output=True, text=True, timeout=60, env=env)
    assert alone.returncode == 125 and "run `gpulayer up`" in alone.stderr, alone
    daemons = [prefix / "bin" / f"gpulayer-{name}" for name in ("server", "worker", "exec")]
    if not all(daemon.exists() for daemon in daemons):
        print("no daemons in this build: the example was not run against a server")
        return
    cli = str(prefix / "bin/gpulayer")
    run(cli, "up", "--listen", "127.0.0.1:0", env=env)
    try:
        done = subprocess.run([program, "sh", "-c", "echo out; echo err >&2; exit 7"], capture_output=True, text=True,
                              timeout=60, env=env)
        assert done.returncode == 7 and done.stdout == "out\n" and "err\n" in done.stderr, done
    finally:
        run(cli, "down", env=env)


def check_build_tree_is_no_package(build: pathlib.Path, source: pathlib.Path, work: pathlib.Path) -> None:
    """With build/release/bin in PATH, as the guides say, find_package looks around there."""
    env = {k: v for k, v in os.environ.items() if k != "CMAKE_PREFIX_PATH"} | {"PATH": f"{build}/bin:{os.environ['PATH']}"}
    done = subprocess.run(["cmake", "-S", str(source / "examples/cpp_client"), "-B", str(work / "none")],
                          capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode != 0 and "gpulayerConfig.cmake" in done.stderr and "Targets" not in done.stderr, done


def main() -> None:
    build, source = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="gpulayer-package-") as temporary:
        work = pathlib.Path(temporary)
        prefix = work / "prefix"
        run("cmake", "--install", str(build), "--prefix", str(prefix))
        library = next((prefix / "lib").rglob("libgpulayer.so"))
        check_headers(prefix, work)
        check_symbols(library)
        check_programs(prefix, build)
        check_example(prefix, source, work)
        check_build_tree_is_no_package(build, source, work)
    print("ok")


if __name__ == "__main__":
    main()
