"""Verification: the proof sheet of `glass verify`, measured on a run's own weights and on this machine.

`sheet` runs the checks, one module each: decoding, masking, numeric, training, files, export and device.
"""
