"""The bug lab: models that were really trained with a known bug, to be diagnosed from what can be seen of them.

A case trains two small models, one with the bug and one without, when it is opened. The learner sees curves, maps,
samples and numbers of both, picks a diagnosis, and is told why the evidence shows it, where the bug was found in
public, and which test of this library catches it.
"""
