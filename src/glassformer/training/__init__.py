"""Training, from prepared text to weights.

Read `loop` first: one screen shows a training step from the learning rate to the checkpoint. It calls `out_of_memory`,
`parallel`, `pace` and `stopwatch` for the rest. `setup` creates or resumes a run and builds its `trainer`;
`optimizers`, `muon` and `schedules` update the weights; `validation` measures the loss; `checkpoint` and `journal`
write files. `auto_sizes` and `sizing` choose settings to suit the text, the time limit and the machine; `budget`,
`clock` and `thread_choice` implement `--minutes`; `plan`, `forecast`, `plan_file`, `memory` and `many_gpus` estimate
the cost of a run before it starts.
"""
