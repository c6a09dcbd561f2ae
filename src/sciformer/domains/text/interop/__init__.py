"""Import and export of language models: Hugging Face (BERT, GPT-2, ...), GGUF."""
