"""The walls of the house: who may import whom, what a start may cost, and what no file of the repository may hold."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import FILES_SIDE_BY_SIDE, SIDE_BY_SIDE

ROOT = Path(__file__).resolve().parents[1]

LEAVES = {"model", "errors"}
ROOMS = {"plan", "judge", "report", "store", "measure"}
JOINERS = {"config", "run", "progress", "command", "console", "doctor", "watch"}
FRAMEWORKS = {"tensorflow", "keras", "tf_keras", "torch", "jax", "onnxruntime", "openvino", "tensorrt"}
OLDEST_PYTHON = (3, 8)
"""The oldest interpreter that a level may name; the worker, the runtimes and the contract run on it."""

HARNESS = sorted((ROOT / "harness").rglob("*.py"))
WORKLOADS = [path for path in sorted((ROOT / "benchmarks").rglob("*.py")) if path.name != "figures.py"]
"""figures.py is a command that times the instrument itself, no workload."""
RUN_ON_THE_OLDEST = [ROOT / "harness/measure/worker.py", *sorted((ROOT / "harness/measure/runtime").glob("*.py")), ROOT / "benchmarks/contract.py"]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that a file imports, also inside functions."""
    package = ".".join(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (base, node.module or "")))
            # "from harness import judge" imports a room just as "import harness.judge" does.
            yield from ((node.lineno, f"{module}.{alias.name}" if module in ("harness", "") else module) for alias in node.names)


def room(module: str) -> str:
    """The part of `harness` that a dotted name belongs to."""
    return module.split(".")[1] if module.count(".") else ""


def allowed(path: Path) -> set[str]:
    """The parts of `harness` that the file at `path` may import."""
    if path.name == "__main__.py":
        return LEAVES | ROOMS | JOINERS | {room(module_of(path))}
    own = room(module_of(path))
    if own in LEAVES:
        return set()
    if own in ROOMS:
        return LEAVES | {own}
    return LEAVES | ROOMS | JOINERS


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("path", HARNESS, ids=name)
def test_a_room_imports_only_what_lies_below_it(path):
    wrong = [
        f"{name(path)}:{line} imports {module}"
        for line, module in imports(path)
        if module.startswith("harness.") and room(module) not in allowed(path)
    ]
    assert [] == wrong


@pytest.mark.parametrize("path", HARNESS, ids=name)
def test_the_instrument_does_not_import_what_it_measures(path):
    assert [] == [f"{name(path)}:{line}" for line, module in imports(path) if module.split(".")[0] == "benchmarks"]


@pytest.mark.parametrize("path", [path for path in HARNESS if "harness/measure/runtime" not in path.as_posix()], ids=name)
def test_frameworks_are_imported_by_benchmarks_and_runtimes_only(path):
    assert [] == [f"{name(path)}:{line} imports {module}" for line, module in imports(path) if module.split(".")[0] in FRAMEWORKS]


@pytest.mark.parametrize(
    "path", [path for path in HARNESS if room(module_of(path)) in {"model", "errors", "plan", "judge", "report", "store", "measure"}], ids=name
)
def test_only_the_configuration_knows_hydra(path):
    assert [] == [f"{name(path)}:{line}" for line, module in imports(path) if module.split(".")[0] in {"hydra", "omegaconf"}]


@pytest.mark.parametrize("path", WORKLOADS, ids=name)
def test_workloads_know_the_errors_of_the_house_and_nothing_else_of_the_instrument(path):
    assert [] == [
        f"{name(path)}:{line} imports {module}" for line, module in imports(path) if module.startswith("harness.") and room(module) not in LEAVES
    ]


def test_only_one_file_imports_the_binding_to_nvml():
    assert {"harness/measure/telemetry/nvml/library.py"} == {name(path) for path in HARNESS for _, module in imports(path) if module == "pynvml"}


def test_only_one_package_asks_nvml_anything():
    asking = {name(path) for path in HARNESS if re.search(r"\"nvml[A-Z]", path.read_text())}
    assert {"harness/measure/telemetry/nvml"} == {asker.rpartition("/")[0] for asker in asking}


def test_the_worker_and_the_contract_need_the_standard_library_only():
    for path in (ROOT / "harness/measure/worker.py", ROOT / "benchmarks/contract.py"):
        assert set() == {module.split(".")[0] for _, module in imports(path)} - sys.stdlib_module_names


@pytest.mark.parametrize("path", RUN_ON_THE_OLDEST, ids=name)
def test_what_runs_inside_a_worker_parses_on_the_oldest_python(path):
    ast.parse(path.read_text(), feature_version=OLDEST_PYTHON)


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("harness.plan, harness.store, harness.measure.session, harness.config", FRAMEWORKS | {"pandas", "matplotlib", "sklearn"}),
        ("harness.judge, harness.report, harness.store", FRAMEWORKS | {"hydra", "omegaconf"}),
        ("harness.run, harness.progress, harness.__main__", FRAMEWORKS | {"matplotlib", "sklearn"}),
        ("harness.watch.exporter, harness.watch.tensorboard", FRAMEWORKS | {"prometheus_client", "tensorboardX", "pandas", "matplotlib"}),
    ],
)
def test_an_import_of_the_rooms_does_not_load_what_they_can_do_without(modules, heavy):
    code = f"import sys, {modules}; print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ("", 0) == (done.stdout.strip(), done.returncode), done.stderr


@pytest.mark.parametrize("path", HARNESS, ids=name)
def test_every_public_module_class_and_function_of_the_instrument_says_what_it_is(path):
    if not path.read_text().strip():
        return
    tree = ast.parse(path.read_text())
    silent = [] if ast.get_docstring(tree) else [f"{name(path)}: the module"]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and not ast.get_docstring(node):
            silent.append(f"{name(path)}:{node.lineno} {node.name}")
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            silent += [
                f"{name(path)}:{part.lineno} {part.name}" for part in methods(node) if not ast.get_docstring(part) and not ast.get_docstring(node)
            ]
    assert [] == silent


def methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [part for part in node.body if isinstance(part, ast.FunctionDef) and not part.name.startswith("_")]


def tracked() -> list[Path]:
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("git, or the clone's .git folder, is missing: the tracked files are not known")
    return [path for path in (ROOT / entry for entry in listed.stdout.split("\0") if entry) if path.is_file() and not path.is_symlink()]


def texts() -> Iterator[tuple[str, str]]:
    for path in tracked():
        try:
            yield name(path), path.read_text("utf-8")
        except UnicodeDecodeError:
            continue


# The pieces are joined here so that this file does not hold what it looks for.
MACHINE_PATH = re.compile("(?<![\\w.])/(?:" + "|".join(("wor" + "k", "roo" + "t", "hom" + "e/(?!ada)", "Use" + "rs")) + ")/?(?=[\\w.])")
INDEX_ADDRESS = re.compile("(?:index[-_]" + "url|extra[-_]" + "index|find[-_]" + "links)[^\\n]*/|.resol" + "ved.: .http|registr" + "y\\s*= ")
UNFINISHED = re.compile("\\b(?:TO" + "DO|FIX" + "ME|XX" + "X|NotImplemented" + "Error)\\b")


def hits(pattern: re.Pattern[str], suffixes: tuple[str, ...] = ()) -> list[str]:
    return [
        f"{where}:{number}: {line.strip()[:80]}"
        for where, text in texts()
        if not suffixes or where.endswith(suffixes)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_names_a_path_of_someones_machine():
    assert [] == hits(MACHINE_PATH)


def test_no_file_names_a_package_index():
    assert [] == hits(INDEX_ADDRESS)


def test_nothing_is_left_for_later_in_the_code():
    assert [] == hits(UNFINISHED, (".py", ".yaml", ".j2"))


def test_no_tracked_file_is_larger_than_three_megabytes():
    assert [] == [name(path) for path in tracked() if path.stat().st_size > 3_000_000]


def test_every_file_whose_tests_run_side_by_side_is_there():
    """One that was renamed would run alone again, and nobody would notice."""
    files = [(folder, name) for folder, names in FILES_SIDE_BY_SIDE.items() for name in names]
    assert [] == [f"{folder}/{name}" for folder, name in files if not (ROOT / "tests" / folder / f"test_{name}.py").is_file()]
    assert [] == [folder for folder in SIDE_BY_SIDE if not (ROOT / "tests" / folder).is_dir()]
