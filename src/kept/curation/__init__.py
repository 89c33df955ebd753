"""What looks after memory and skills over time: the curator, consolidation, their reports."""
