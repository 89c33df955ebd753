"""The assistant without a model: it recognises what a message wants, and answers from stored text."""
