"""Language models of others: BERT, GPT-2 and Llama of Hugging Face, GGUF files."""
