"""What a recipe for the user's own files should say, and why."""
