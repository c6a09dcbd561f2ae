"""Vision transformers of others: Hugging Face's ViT and ViTMAE, timm."""
