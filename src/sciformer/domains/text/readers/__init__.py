"""Readers of text files: documents, labelled texts, tagged words, parallel texts."""
