"""Models made of `nn` parts: encoder, decoder, encoder-decoder, masked autoencoder."""
