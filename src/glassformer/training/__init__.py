"""Training, from prepared text to weights.

Read `loop` first: it shows a training step from the learning rate to the checkpoint. `setup` creates or resumes
a run and builds its `trainer`, whose methods the loop calls. `stepping`, `out_of_memory` and `parallel` help to compute
the gradients of a step; `optimizers`, `muon` and `averaging` update the weights; `schedules` sets the learning rate.
`validation` measures the loss; `checkpoint`, `journal` and `legs` write files. `auto_sizes` and `sizing` choose
settings to suit the text, the time limit and the machine; `pace`, `budget`, `clock` and `thread_choice` implement
`--minutes`. Before a run starts, `plan`, `step_measurement`, `memory` and `many_gpus` estimate its time and memory, and
`forecast` predicts its loss; `plan_file` writes these estimates.
"""
