"""Training: from a prepared text to weights.

Read `loop` first: one screen from the learning rate of a step to its checkpoint. It asks `out_of_memory`, `parallel`,
`pace` and `stopwatch` for everything else. `setup` opens a new or an interrupted run and makes its `trainer`;
`optimizers`, `muon` and `schedules` move the weights; `validation` measures; `checkpoint` and `journal` write. `auto`
and `sizing` choose settings from the text, the time and the processor; `budget`, `clock` and `threads` serve
`--minutes`; `plan`, `forecast`, `foresight`, `memory` and `scaling` say beforehand what a run needs.
"""
