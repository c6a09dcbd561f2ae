"""Other trunks, called like Transformer: recurrent, convolutional, point clouds."""
