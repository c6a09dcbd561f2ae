"""Models from `nn` parts: encoder, decoder, encoder-decoder, masked autoencoder."""
