"""Private sketches of distributions: sums over records with noise, and what is made of them."""
