"""The bug lab: the learner diagnoses models that were trained with a known bug.

Opening a case trains small models with and without the bug, or trains one model and uses it with and without the bug.
The learner sees curves, attention maps, samples and numbers with and without the bug, and picks a diagnosis. If the
diagnosis is right, the verdict explains the evidence, and names the public report of the bug and the test of this
library that catches it.
"""
