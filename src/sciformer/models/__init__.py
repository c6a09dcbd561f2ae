"""Models from parts in `nn`: encoder, decoder, encoder-decoder, masked autoencoder."""
