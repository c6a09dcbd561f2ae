"""Texts from files: running text, labelled lines, tagged words, translations."""
