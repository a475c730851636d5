"""Other trainers' contracts, a package each: their wire, over our own store."""
