"""`glass learn` as learners and teachers use it, through the command line."""

from __future__ import annotations

import csv
import json
import threading
import time
from pathlib import Path

import pytest

from glassformer.base.errors import GlassError
from glassformer_course.checking import check_source
from glassformer_course.course import COURSE, all_exercises, find
from glassformer_course.folder import CourseFolder
from glassformer_course.watching import watch
from tests.journey.commands import here

SOFTMAX = find("softmax")
ENDLESS = "def softmax(x):\n    while True:\n        print('round and round')\n"
HEAVY = "def softmax(x):\n    return [0] * 10**12\n"
GROWING = "def softmax(x):\n    held = []\n    while True:\n        held.append(bytearray(10**7))\n"
CHANGING = "def softmax(x):\n    x += 1\n    return x\n"
SPEECHLESS = "class Odd(KeyboardInterrupt):\n    def __str__(self):\n        return 1\ndef softmax(x):\n    raise Odd\n"
CONTAINED = {
    "endless": (ENDLESS, "stopped", "the answer did not finish within 1 second; look for an endless loop"),
    "heavy": (HEAVY, "wrong", "softmax raised MemoryError (line 2)"),
    "growing": (GROWING, "wrong", "softmax raised MemoryError (line 4)"),
    "exit when loaded": ("import sys\nsys.exit(0)\n", "broken", "An answer only defines functions"),
    "exit when called": ("import sys\ndef softmax(x):\n    sys.exit(0)\n", "wrong", "raised SystemExit: 0 (line 3)"),
    "ends its process": ("import os\ndef softmax(x):\n    os._exit(0)\n", "stopped", "exited with code 0"),
    "syntax": ("def softmax(x:\n    return x\n", "broken", "SyntaxError, line 1"),
    "other name": ("def soft_max(x):\n    return x\n", "broken", "The answer has no function softmax"),
    "no file": ("", "broken", "The answer has no function softmax"),
    "changes its input": (CHANGING, "wrong", "softmax changed its argument 1"),
    "imports the reference": (
        "from glassformer_course.exercises.softmax.check import softmax\n",
        "broken",
        "glassformer_course cannot be imported here: write your own answer",
    ),
    "imports the library": (
        "from glassformer.model.attention import attend as softmax\n",
        "broken",
        "glassformer cannot be imported here",
    ),
    "imports torch": ("import torch\nsoftmax = torch.softmax\n", "broken", "torch cannot be imported here"),
    "interrupts without words": (SPEECHLESS, "wrong", "softmax raised Odd (line 5)"),
    "thousands of digits": ("def softmax(x):\n    return 10**5000\n", "wrong", "raised ValueError: Exceeds the limit"),
    "crashes": (
        "from numpy.lib.stride_tricks import as_strided\nimport numpy\n"
        "as_strided(numpy.ones(1), shape=(9,), strides=(1 << 50,)).sum()\n",
        "stopped",
        "the answer's process was killed by SIGSEGV",
    ),
    "no return": ("def softmax(x):\n    x * 2\n", "wrong", "the result is None (is a return missing?)"),
    "objects": ("def softmax(x):\n    return x.astype(object)\n", "wrong", "got array of object"),
    "asks for input": ("def softmax(x):\n    return input()\n", "wrong", "softmax raised EOFError"),
    "answers with a generator": ("def softmax(x):\n    yield 1\n", "wrong", "the result is not an array"),
    "writes into the conversation": (
        "import os\ndef softmax(x):\n    for place in range(3, 9):\n        try:\n"
        "            os.write(place, b'{\"gave\": 1}\\n')\n        except OSError:\n            pass\n    return x\n",
        "stopped",
        "the answer interfered with the messages between its process and the checker",
    ),
    "too large": ("def softmax(x):\n    return 'a' * (65 << 20)\n", "stopped", "a result is larger than 64 MB"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", CONTAINED)
def test_bad_answers_are_contained_and_explained(name: str) -> None:
    source, result, words = CONTAINED[name]
    seconds = 1 if name == "endless" else 5
    megabytes = 64 if name == "growing" else 300
    verdict = check_source(SOFTMAX, source, seed=0, seconds=seconds, megabytes=megabytes)
    assert (verdict.result, verdict.passed) == (result, False), verdict
    assert words in verdict.text()
    assert len(verdict.printed) <= 2_000
    assert verdict.mistake == ("computed in place" if name == "changes its input" else "")


def test_the_printed_output_is_that_of_the_failing_case() -> None:
    source = "import numpy as np\nprint('read')\ndef softmax(x):\n    print(x.shape)\n"
    wrong = source + "    e = np.exp(x)\n    return e / e.sum()\n"
    assert check_source(SOFTMAX, wrong, seed=0).printed.split("\n") == ["read", "(2, 3)", ""]


@pytest.mark.thorough
def test_the_whole_course_is_solved_by_the_shipped_solutions(tmp_path: Path) -> None:
    assert len(COURSE) >= 24
    for exercise in all_exercises():
        assert here("learn", "start", str(exercise.number), folder=tmp_path).returncode == 0
        (tmp_path / "glass-learn" / f"{exercise.file_name}.py").write_text(exercise.solution, encoding="utf-8")
    checked = here("learn", "check", "--all", "--json", folder=tmp_path)
    facts = json.loads(checked.stdout)["exercises"]
    assert checked.returncode == 0, [each for each in facts if not each["passed"]]
    assert [each["name"] for each in facts] == list(COURSE)
    listed = json.loads(here("learn", "list", "--json", folder=tmp_path).stdout)["exercises"]
    assert [(each["number"], each["name"], each["done"]) for each in listed] == [
        (number, name, True) for number, name in enumerate(COURSE, start=1)
    ]
    assert [(each["minutes"], each["difficulty"]) for each in listed] == [
        (exercise.minutes, exercise.difficulty) for exercise in all_exercises()
    ]
    assert here("learn", "start", folder=tmp_path).stderr.startswith("every exercise of this course is done\n")


def test_a_learner_corrects_an_answer_and_nothing_is_lost(tmp_path: Path) -> None:
    def learn(*words: str, code: int = 0) -> str:
        done = here("learn", *words, folder=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    file = tmp_path / "glass-learn" / "02_softmax.py"
    assert f"\n{SOFTMAX.effort}.\n" in learn("start", "2")
    for level in ("school", "researcher"):
        assert SOFTMAX.page(level).split()[:6] == learn("start", "2", "--level", level).split("\n\n")[2].split()[:6]
    assert "not written yet" in learn("check", "2", code=2)
    wrong = "import numpy as np\ndef softmax(x):\n    e = np.exp(x)\n    return e / e.sum(axis=-1, keepdims=True)\n"
    file.write_text(wrong, encoding="utf-8")
    said = learn("check", "softmax", code=2)
    assert "This is a known mistake: no maximum subtracted." in said
    assert "first difference at [0, 0]: expected 0." in said
    assert [learn("hint", "2").strip().splitlines()[-1] for _ in range(4)] == [
        SOFTMAX.hint(number).splitlines()[-1] for number in (1, 2, 3, 3)
    ]
    assert "renamed to" in learn("reset", "2")
    assert file.with_name("02_softmax.old-1.py").read_text(encoding="utf-8") == wrong
    assert file.read_text(encoding="utf-8") == SOFTMAX.stub
    file.write_text(learn("solution", "2"), encoding="utf-8")
    assert "2 Stable softmax: right." in learn("check", str(file))
    facts = json.loads(learn("progress", "--json"))
    assert (facts["done"], facts["next"]) == (1, COURSE[0])
    [record] = [each for each in facts["exercises"] if each["name"] == "softmax"]
    assert record == {
        "number": 2,
        "name": "softmax",
        "done": True,
        "attempts": 1,
        "hints": 0,
        "hints_seen": 3,
        "solution_seen": True,
    }
    assert learn("progress").startswith(f"1 of {len(COURSE)} done")
    written = file.read_bytes()
    learn("start", "2")
    assert file.read_bytes() == written


@pytest.mark.thorough
def test_equal_seeds_give_equal_questions_and_new_seeds_differ() -> None:
    source = "import numpy as np\ndef softmax(x):\n    print(float(np.sum(x)))\n    return np.exp(x)\n"
    first, again, other = (check_source(SOFTMAX, source, seed).lines for seed in (3, 3, 4))
    assert first == again
    wrong_later = "import numpy as np\ndef softmax(x):\n    e = np.exp(x)\n    return e / e.sum()\n"
    assert check_source(SOFTMAX, wrong_later, 3).lines != check_source(SOFTMAX, wrong_later, 4).lines
    assert len({check_source(SOFTMAX, wrong_later).seed for _ in range(3)}) > 1
    assert other == first  # its first case is no random one


@pytest.mark.thorough
def test_watch_checks_each_save_and_continues(tmp_path: Path) -> None:
    folder = CourseFolder(tmp_path / "mine")
    folder.exercises = [find("softmax"), find("matmul")]
    said: list[str] = []
    began = threading.Event()
    broken = threading.Event()

    def start(exercise: object) -> None:
        said.append(f"start {exercise.name}")  # type: ignore[attr-defined]
        began.set()

    def trouble(error: GlassError) -> None:
        said.append("unreadable")
        broken.set()

    watcher = threading.Thread(
        target=watch, args=(folder, start, lambda verdict: said.append(verdict.result), trouble), daemon=True
    )
    watcher.start()
    for exercise in folder.exercises:
        assert began.wait(20)
        began.clear()
        while said[-1] != "unwritten":
            time.sleep(0.05)
        path = folder.file(exercise)
        path.write_bytes(b"\xff")  # it goes on watching
        assert broken.wait(20)
        broken.clear()
        CourseFolder(folder.path).note_hint(exercise, 1)  # in another terminal
        path.unlink()  # as editors do that write anew
        path.write_text(exercise.solution, encoding="utf-8")
    watcher.join(20)
    assert said == [
        "start softmax",
        "unwritten",
        "unreadable",
        "right",
        "start matmul",
        "unwritten",
        "unreadable",
        "right",
    ]
    kept = CourseFolder(folder.path).records
    assert all((kept[name].attempts, kept[name].hints) == (2, 1) for name in ("softmax", "matmul"))


@pytest.mark.thorough
def test_a_notebook_is_the_same_exercise_and_calls_the_same_check(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    assert here("learn", "notebook", "2", "--folder", ".", folder=tmp_path).returncode == 0
    path = tmp_path / "02_softmax.ipynb"
    book = nbformat.read(path, as_version=4)
    answer = next(cell for cell in book.cells if "answer" in cell.metadata.get("tags", []))
    assert answer.source.strip() in SOFTMAX.stub
    assert "data:image/svg+xml;base64," in book.cells[1].source
    assert f"*{SOFTMAX.effort}.*" in book.cells[1].source
    answer.source = SOFTMAX.solution.split("# %%\n")[1]
    nbformat.write(book, path)
    assert "right" in here("learn", "check", "2", "--notebook", folder=tmp_path).stdout
    (tmp_path / "course.json").unlink()
    assert here("learn", "start", "1", "--folder", ".", folder=tmp_path).returncode == 0  # a course, 2 not done
    nbclient.NotebookClient(book, resources={"metadata": {"path": str(tmp_path)}}, timeout=60).execute()
    assert any("2 Stable softmax: right." in str(cell.get("outputs")) for cell in book.cells)
    assert CourseFolder(tmp_path).record(SOFTMAX).done


@pytest.mark.thorough
def test_a_teacher_assigns_and_grades(tmp_path: Path) -> None:
    (tmp_path / "tale.txt").write_text("আমি বাংলায় গান গাই। The old dog sleeps by the door.\n" * 20, encoding="utf-8")
    words = ("learn", "assign", "1-2", "byte_pairs", "--text", "tale.txt", "--out", "week", "--notebooks")
    assert here(*words, folder=tmp_path).returncode == 0
    names = {path.name for path in (tmp_path / "week").iterdir()}
    assert {"README.md", "text.txt", "course.json", "01_matmul.py", "02_softmax.ipynb", "04_byte_pairs.py"} <= names
    solved = {find(name).file_name + ".py": find(name).solution for name in ("matmul", "softmax", "byte_pairs")}
    handed = {
        "ana": solved,
        "=bob": {**solved, "02_softmax.py": "def softmax(x):\n    return x / x.sum(axis=-1, keepdims=True)\n"},
        "চিত্রা": {"week/04_byte_pairs.py": solved["04_byte_pairs.py"], "softmax.py": "", "01_matmul.py": ENDLESS},
        "dot": {"01_matmul.py": "def matmul(a, b):\n    open('../../ana/01_matmul.py', 'w').write('')\n"},
    }
    for student, answers in handed.items():
        folder = tmp_path / "handed" / student
        folder.mkdir(parents=True)
        for name, text in answers.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    (tmp_path / "handed" / "dot" / "02_softmax.py").write_bytes(b"\xff\xfe")
    before = {path: path.read_bytes() for path in (tmp_path / "handed").rglob("*.py")}
    marking = ("learn", "grade", "handed", "--assignment", "week", "--out", "marks.csv", "--seconds", "20")
    done = here(*marking, "--workers", "2", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ana     3 of 3 right; same as the solution: 1, 2, 4; course.json is missing" in done.stdout
    rows = list(csv.DictReader((tmp_path / "marks.csv").open(encoding="utf-8-sig")))
    assert len(rows) == len(handed) * 3
    results = {(row["student"], row["exercise"]): row["result"] for row in rows}
    assert [results["ana", name] for name in ("matmul", "softmax", "byte_pairs")] == ["right"] * 3
    assert results["'=bob", "softmax"] == "wrong"  # a spreadsheet shows it, and computes nothing
    assert [results["চিত্রা", name] for name in ("matmul", "softmax", "byte_pairs")] == ["broken", "missing", "right"]
    assert results["dot", "softmax"] == "unreadable"
    assert before == {path: path.read_bytes() for path in (tmp_path / "handed").rglob("*.py")}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("chek",), "glass learn has no action 'chek'\nDid you mean check?"),
        (
            ("check", "99"),
            f"there is no exercise 99\nChoose an exercise from 1 to {len(COURSE)}; glass learn list shows them.",
        ),
        (("check", "softmx"), "there is no exercise 'softmx'\nDid you mean softmax?"),
        (("check", "2"), "there is no file glass-learn/02_softmax.py\nTo create it: glass learn start 2"),
        (("check", "--all"), "no exercise was started in glass-learn\nStart with: glass learn start"),
        (("check", "²"), "there is no exercise '²'\n"),
        (("check", "2", "--seed", "-1"), "--seed is -1\nGive 0 or more."),
        (("grade", "damaged", "--seconds", "inf"), "--seconds is inf\nGive a number above 0, at most 3,600."),
        (("start", "2", "3"), "unexpected argument '3'\nglass learn start takes at most 1 argument."),
        (
            ("list", "--seed", "3"),
            "glass learn list does not accept --seed\nIt is accepted by: check, watch, grade.",
        ),
        (("reset",), "glass learn reset needs an exercise\nFor example: glass learn reset 2"),
        (
            ("list", "--folder", "damaged"),
            "damaged/course.json is damaged\nMove it away; your answers are kept. To check them again: ",
        ),
        (("assign", "2"), "no --out was given\nName a new folder: --out week-1"),
        (
            ("assign", "2", "--out", "damaged"),
            "damaged already exists and is not overwritten\nChoose another --out, or move damaged away.",
        ),
        (("grade", "nowhere"), "there is no folder nowhere\n"),
        (("grade", "damaged", "--seconds", "0"), "--seconds is 0.0\nGive a number above 0, at most 3,600."),
    ],
)
def test_errors_have_two_lines(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "course.json").write_text("{", encoding="utf-8")
    done = here("learn", *words, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.replace("\\", "/").startswith(said)
    assert len(done.stderr.strip().splitlines()) == 2
    assert (tmp_path / "damaged" / "course.json").read_text(encoding="utf-8") == "{"
