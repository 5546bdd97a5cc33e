"""The paper's tasks: the hidden Markov chain and one-shot image classification."""
