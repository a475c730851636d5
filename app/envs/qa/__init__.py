"""Questions with answers that code can check, from any data set."""
