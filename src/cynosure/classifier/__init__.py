"""The hardmax classifier of texts, whose computation is its explanation.

`text` and `datasets` make tokens of words; `model` decides; `placement` and `training` fit it, the
latter through the softmax model of `soft_model`; `estimator` is the scikit-learn class;
`explanation`, `deletions` and `evaluation` say what it does; `shipped` opens the models that come
with the package.
"""
