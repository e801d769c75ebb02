"""`glass data list` and `glass data show` for generated documents, pairs, labelled texts and minimal pairs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from glassformer.app.cli.main import main
from glassformer.corpora import (
    CORPORA,
    find_labelled_corpus,
    find_minimal_pair_corpus,
    find_pair_corpus,
    find_text_corpus,
)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["data", *arguments]) == 0
    return capsys.readouterr().out


def facts(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found = json.loads(said(capsys, *arguments, "--json"))
    assert isinstance(found, dict)
    return found


def test_the_list_names_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    listed = facts(capsys, "list")["corpora"]
    assert {name: tuple(about["tasks"]) for name, about in listed.items()} == {
        name: corpus.tasks for name, corpus in CORPORA.items()
    }
    line = next(line for line in said(capsys, "list").splitlines() if line.split()[0] == "reverse")
    assert line.endswith("[lm, masked, translate]")


def test_pairs_are_shown_with_a_tab(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = list(find_pair_corpus("translation-en-bn").pairs(3, seed=2))
    shown = said(capsys, "show", "translation-en-bn", "--size", "3", "--seed", "2")
    assert [tuple(line.split("\t")) for line in shown.splitlines()] == pairs
    found = facts(capsys, "show", "translation-en-bn", "--size", "3", "--seed", "2")
    assert [(pair["source"], pair["target"]) for pair in found["pairs"]] == pairs
    assert "documents" not in found


def test_labels_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    corpus = find_labelled_corpus("topics")
    texts = list(corpus.labelled(4, seed=2))
    shown = said(capsys, "show", "topics", "--size", "4", "--seed", "2")
    assert [tuple(line.split("\t"))[::-1] for line in shown.splitlines()] == texts
    found = facts(capsys, "show", "topics", "--size", "4", "--seed", "2")
    assert found["bayes_error"] == pytest.approx(corpus.bayes_error())
    assert [(text["text"], text["label"]) for text in found["labelled"]] == texts


@pytest.mark.parametrize("name", ["agreement", "coreference", "pronouns-bn", "brackets"])
def test_minimal_pairs_follow_the_documents(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    documents = list(find_text_corpus(name).documents(4, seed=2))
    pairs = list(find_minimal_pair_corpus(name).minimal_pairs(4, seed=2))
    lines = said(capsys, "show", name, "--size", "4", "--seed", "2").splitlines()
    assert lines[:4] == documents
    assert [tuple(line.split("\t")) for line in lines[-4:]] == [(pair.good, pair.bad) for pair in pairs]
    found = facts(capsys, "show", name, "--size", "4", "--seed", "2")
    assert found["documents"] == documents
    assert found["minimal_pairs"][3] == vars(pairs[3])
    assert found["entropy_per_document"] > 0


def test_string_corpora_show_lines_and_mention_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    documents = list(find_text_corpus("reverse").documents(3, seed=0))
    assert said(capsys, "show", "reverse", "--size", "3").splitlines() == documents
    found = facts(capsys, "show", "reverse", "--size", "3")
    assert all(pair["source"] == pair["target"][::-1] for pair in found["pairs"])
    assert len(found["pairs"]) == len(found["documents"]) == 3
