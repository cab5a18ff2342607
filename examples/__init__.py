"""The examples of the gallery; ``python -m examples.sampling.plot_city_checkins`` runs one."""
