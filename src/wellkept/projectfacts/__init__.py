"""What the pages say about a project, checked against its files and its git history, without a model."""
