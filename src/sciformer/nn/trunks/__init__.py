"""Other trunks with the call of the transformer: recurrent, convolutional, point clouds."""
