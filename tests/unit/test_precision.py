"""`auto` follows measured speeds, which are cached per machine and environment; runs record the chosen precision."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.model import precision
from glassformer.model.precision import (
    MARGIN,
    Speeds,
    bfloat16_is_faster,
    cache_speeds,
    choose_precision,
    describe_precision,
    measure_speeds,
    processor_speeds,
    resolve_precision,
)

CPU = torch.device("cpu")
CUDA = torch.device("cuda")
MPS = torch.device("mps")
SLOW = Speeds(100.0, 1.0)
FAST = Speeds(100.0, 500.0)
RESTRICTED = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder for caches."""
    monkeypatch.setenv("GLASS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def kept(cache: Path) -> Path:
    """Return the single file of cached speeds."""
    (file,) = (cache / "speeds").iterdir()
    return file


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let timing return 7 and 70 GFLOP/s, and record each timing."""
    calls: list[int] = []

    def instead() -> Speeds:
        calls.append(1)
        return Speeds(7.0, 70.0)

    monkeypatch.setattr(precision, "measure_speeds", instead)
    return calls


def of(**train: object) -> Config:
    return Config.from_dict({"train": {"device": "cpu", **train}})


@pytest.mark.parametrize(
    ("ratio", "faster"), [(0.01, False), (1.0, False), (MARGIN - 0.01, False), (MARGIN, True), (8.0, True)]
)
def test_bfloat16_is_chosen_only_where_it_is_clearly_faster(ratio: float, faster: bool, cache: Path) -> None:
    cache_speeds(Speeds(100.0, 100.0 * ratio))
    assert bfloat16_is_faster(CPU) == faster
    dtype = torch.bfloat16 if faster else torch.float32
    assert choose_precision("auto", CPU) == dtype
    name = "bf16" if faster else "fp32"
    train = resolve_precision(of(optimizer="muon")).train
    assert (train.precision, train.muon_precision) == (name, name)


@pytest.mark.parametrize("speeds", [SLOW, FAST])
def test_a_requested_precision_is_kept(speeds: Speeds, cache: Path) -> None:
    cache_speeds(speeds)
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        assert choose_precision(name, CPU) == dtype
        train = resolve_precision(of(precision=name, muon_precision=name)).train
        assert (train.precision, train.muon_precision) == (name, name)


@pytest.mark.parametrize("native", [True, False])
def test_gpus_report_support_and_are_not_timed(native: bool, timed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: native or including_emulation)
    assert bfloat16_is_faster(CUDA) == native
    assert not bfloat16_is_faster(MPS)
    assert not timed


def test_the_cpu_is_timed_once(cache: Path, timed: list[int]) -> None:
    assert processor_speeds() == processor_speeds() == Speeds(7.0, 70.0)
    precision._cached_or_measured.cache_clear()  # as in a new process
    assert processor_speeds() == Speeds(7.0, 70.0)
    assert len(timed) == 1


def test_other_instruction_sets_are_timed_again(cache: Path, timed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    cache_speeds(SLOW)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
    assert processor_speeds() == Speeds(7.0, 70.0)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    assert processor_speeds() == SLOW


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", "null", '{"float32": 1}', "\0", '{"float32": NaN, "bfloat16": 1}', '{"float32": 0, "bfloat16": 1}'],
)
def test_a_damaged_cache_file_is_not_an_error(damage: str, cache: Path, timed: list[int]) -> None:
    cache_speeds(SLOW)
    file = kept(cache)
    whole = file.read_text(encoding="utf-8")
    if damage.startswith("{") and damage.endswith("}"):
        damage = json.dumps({**json.loads(whole), **json.loads(damage), **({} if "b" in damage else {"bfloat16": "x"})})
    file.write_text(damage, encoding="utf-8")
    precision._cached_or_measured.cache_clear()
    assert processor_speeds() == Speeds(7.0, 70.0)
    precision._cached_or_measured.cache_clear()
    assert processor_speeds() == Speeds(7.0, 70.0)
    assert len(timed) == 1  # a complete file has replaced it


def test_cached_speeds_of_another_environment_are_ignored(cache: Path, timed: list[int]) -> None:
    cache_speeds(SLOW)
    file = kept(cache)
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), "environment": "x"}), encoding="utf-8")
    precision._cached_or_measured.cache_clear()
    assert processor_speeds() == Speeds(7.0, 70.0)


def test_without_a_writable_folder_the_cpu_is_timed_once_per_process(
    tmp_path: Path, timed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GLASS_CACHE", str(tmp_path / "file"))
    assert processor_speeds() == processor_speeds() == Speeds(7.0, 70.0)
    assert len(timed) == 1


def test_without_a_home_folder_the_cpu_is_timed(timed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GLASS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    assert processor_speeds() == Speeds(7.0, 70.0)
    cache_speeds(SLOW)


def test_the_users_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLASS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_speeds(SLOW)
    assert kept(tmp_path / "glassformer").suffix == ".json"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert precision._cache_folder() == tmp_path / "home" / ".cache" / "glassformer"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert precision._cache_folder() == tmp_path / "home" / "Library" / "Caches" / "glassformer"


def test_timing_does_not_change_threads_or_random_state() -> None:
    threads = torch.get_num_threads()
    state = torch.get_rng_state()
    speeds = measure_speeds()
    assert speeds.float32 > 0 < speeds.bfloat16
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_a_restricted_processor_computes_in_float32(tmp_path: Path) -> None:
    """torch still lists the disabled instructions, but the measured speeds show that they are not used."""
    code = (
        "import torch; from glassformer.model.precision import *; "
        "print(choose_precision('auto', torch.device('cpu')), processor_speeds().ratio)"
    )
    environment = {**os.environ, **RESTRICTED, "GLASS_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("torch.float32 "), done.stdout
    assert kept(tmp_path).is_file()


def test_importing_times_nothing(tmp_path: Path) -> None:
    code = "import glassformer.model.precision, glassformer.training.setup, glassformer.training.muon"
    environment = {**os.environ, "GLASS_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("speeds", "train", "words"),
    [
        (SLOW, {}, "precision float32: bfloat16 is 0.01 times as fast as float32 here"),
        (FAST, {}, "precision bfloat16: bfloat16 is 5 times as fast as float32 here"),
        (SLOW, {"precision": "bf16"}, "precision bfloat16: set by train.precision, although bfloat16 is 0.01 times"),
        (FAST, {"optimizer": "muon"}, "precision bfloat16 (Muon: bf16): bfloat16 is 5 times"),
    ],
)
def test_the_reason_is_explained(speeds: Speeds, train: dict[str, str], words: str, cache: Path) -> None:
    cache_speeds(speeds)
    assert describe_precision(resolve_precision(of(**train))).startswith(words)


def test_unknown_precisions_are_refused() -> None:
    with pytest.raises(GlassError, match="muon_precision"):
        of(muon_precision="fp16")
