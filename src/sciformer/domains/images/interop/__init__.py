"""Import and export of vision transformers: Hugging Face and timm."""
