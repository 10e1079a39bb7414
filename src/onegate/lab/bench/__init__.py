"""Speed side by side: our units, torch.nn and other libraries, in one process.

What is measured. A training step: the gradients are set to None, the layer runs forward, and
backward from a given gradient of all its outputs; the gradient of the input is asked for only
where the task needs it (Penn TreeBank, for the embedding). Inference: the same forward run under
`torch.no_grad`, the modules in evaluation mode.

How it is kept fair:
- All contestants run in this process, on the same input, in float32 and on as many threads.
- They take turns: a round is one turn of each, every round in a new random order, so that
  whatever else the machine does meets all of them alike. Matrix products of 1024 x 1024, which
  give the machine's peak, take turns with them.
- A turn is as many calls as take 20 ms, and at least one, led in by one that is not counted: by
  then the caches are the contestant's own, as in training, and the threads of another library,
  which wait for work for a while with the core busy, have gone to sleep.
- Two rounds of warm-up are not counted. The garbage collector is off while rounds run.
- Reported are medians and quartiles; ratios are ratios of medians.
- JAX has threads of its own. Their number is limited to the same before it starts, where it has
  not started yet; the table says so.
"""
