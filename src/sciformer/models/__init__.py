"""Models built from `nn`: encoder, decoder, encoder-decoder, masked autoencoder."""
