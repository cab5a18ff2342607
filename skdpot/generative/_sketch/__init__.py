"""Private sketches of distributions: sums over records with noise, and models made from them."""
