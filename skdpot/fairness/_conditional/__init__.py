"""Sequential conditional repair of tables: one-dimensional conditional transports, in turn."""

from skdpot.fairness._conditional._map import MAX_ROWS, ConditionalMap, fit_conditional
