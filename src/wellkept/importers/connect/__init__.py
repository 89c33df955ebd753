"""The files that connect an agent to kept: what is written where, how it is merged and taken out again."""
