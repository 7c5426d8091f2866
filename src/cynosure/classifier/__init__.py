"""The hardmax classifier of texts, whose computation is its explanation.

`datasets` reads labelled texts and `text` turns them into terms; `model` runs hardmax layers on
their tokens and decides; `placement` and `training` (through the softmax layers of `soft_model`)
are two ways to fit a model; `estimator` is the scikit-learn class. `explanation` says why a text
got its label, `deletions` tests explanations, `evaluation` measures a classifier; `shipped` opens
the models that come with the package.
"""
