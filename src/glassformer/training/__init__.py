"""Training, from prepared text to weights.

Read `loop` first: it shows a step from its learning rate to its checkpoint on one screen, and uses `out_of_memory`,
`parallel`, `pace` and `stopwatch` for everything else. `setup` creates or resumes a run and builds its `trainer`;
`optimizers`, `muon` and `schedules` update the weights; `validation` measures the loss; `checkpoint` and `journal`
write files. `auto_sizes` and `sizing` choose settings for the text, the time and the machine; `budget`, `clock` and
`thread_choice` implement `--minutes`; `plan`, `forecast`, `plan_file`, `memory` and `many_gpus` estimate the cost of a
run before it starts.
"""
