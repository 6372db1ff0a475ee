"""Reading data sets with torch: tensors and their splits, image folders, streams."""
