"""Training: from a prepared text to weights.

Read `loop` first: one screen from the learning rate of a step to its checkpoint. It asks `out_of_memory`, `parallel`,
`pace` and `stopwatch` for everything else. `setup` opens a new or an interrupted run and makes its `trainer`;
`optimizers`, `muon` and `schedules` move the weights; `validation` measures; `checkpoint` and `journal` write.
`auto_sizes` and `sizing` choose settings from the text, the time and the processor; `budget`, `clock` and
`thread_choice` serve `--minutes`; `plan`, `forecast`, `plan_file`, `memory` and `many_gpus` say beforehand what a run
needs.
"""
