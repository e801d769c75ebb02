"""The bug lab: the learner diagnoses models that were trained with a known bug.

Opening a case trains two small models, one with the bug and one without, or trains one model and uses it with and
without the bug. The learner sees curves, attention maps, samples and numbers of both and picks a diagnosis. The verdict
explains the evidence, names the public report of the bug, and names the test of this library that catches it.
"""
