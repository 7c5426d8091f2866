"""The hardmax classifier of texts, whose computation is its explanation.

`text` and `datasets` make tokens of words; `model` decides; `placement` and `training` fit it;
`estimator` is the scikit-learn class; `explanation`, `deletions` and `evaluation` say what it
does; `shipped` opens the models that come with the package.
"""
