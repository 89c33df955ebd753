"""What keeps hostile text, secrets and paths from doing harm."""
