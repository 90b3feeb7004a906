"""Files as others write them: .npy, .npz members and text tables, read in blocks."""
