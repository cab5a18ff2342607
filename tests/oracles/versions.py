"""The release of scikit-learn that the tests run with."""

import sklearn

IS_SKLEARN_1_7 = sklearn.__version__.startswith("1.7.")
