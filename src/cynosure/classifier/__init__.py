"""A classifier of texts whose hardmax layers are its explanation.

A text flows through the folders in this order. Each imports only those before it.

===============  ==========================================================================
`kernels`        compiled loops over texts
`text`           inputs of any kind, labelled data sets, terms, the vocabulary
`model`          the plane on which terms are placed, the hardmax layers that decide
`fitting`        the convex fit (`placement`) and gradient descent (`training`)
`explaining`     `LoadedModel`, which predicts and explains without scikit-learn; leaders,
                 words that decided, words whose deletion turns the verdict
`estimator`      `HardmaxClassifier`, the scikit-learn class
`linear`         `read_linear`: the same explanations for scikit-learn pipelines
`exports`        a fitted model as one JSON file, with readers in JavaScript and SQL
`published`      the model that arXiv 2407.01602 published, and any hardmax model of arrays
`bundled`        the models that come with the package
`evaluating`     accuracy, calibration, faithfulness by deletion, the model's page
`bulk`           files of texts labelled in partitions, with the words that decided
===============  ==========================================================================
"""

from __future__ import annotations

from .._exports import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
