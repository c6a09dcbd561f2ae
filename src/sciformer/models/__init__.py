"""Models: encoder, decoder, encoder-decoder and masked autoencoder, from parts in `nn`."""
