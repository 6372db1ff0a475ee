"""Steps of optimizers that torch and the libraries do not have as they are needed here."""
