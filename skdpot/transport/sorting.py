"""A stable sort for kernels: NumPy's own takes a second to compile."""

import numpy as np

from .kernels import part


@part
def sorted_places(values):
    """Return the places of the values from the least to the largest, equal ones in their order."""
    n_values = len(values)
    order = np.empty(n_values, np.int64)
    merged = np.empty(n_values, np.int64)
    for i in range(n_values):
        order[i] = i
    width = 1
    while width < n_values:
        for low in range(0, n_values, 2 * width):
            middle = min(low + width, n_values)
            high = min(middle + width, n_values)
            left, right = low, middle
            for place in range(low, high):
                take_left = right == high
                if left < middle and not take_left:
                    take_left = values[order[left]] <= values[order[right]]
                if take_left:
                    merged[place] = order[left]
                    left += 1
                else:
                    merged[place] = order[right]
                    right += 1
        order, merged = merged, order
        width *= 2
    return order
